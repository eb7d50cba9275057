"""A real sentence encoder, MiniLM, computed by callboard's ops alone, recorded once and replayed as one message."""

import asyncio
import sys

import numpy as np

import callboard as cb
from callboard.serve.bundled.minilm import reference
from callboard.serve.bundled.minilm_ops import encoded, padded, weights_on
from callboard.serve.bundled.weights import model_folder
from callboard.serve.bundled.wordpiece import Tokens


async def main(name: str) -> None:
    folder = model_folder()
    tokenize = Tokens(folder)
    texts, vectors = (each[:6] for each in reference())  # as sentence-transformers computes them
    given = padded([tokenize(text) for text in texts])
    async with cb.device(name) as gpu:
        weights, text = weights_on(gpu, folder), {key: gpu.put(value) for key, value in given.items()}
        said = await encoded(gpu, weights, text).get()
        with gpu.record(**text) as recording:
            model = recording.returns(encoded(gpu, weights, text))
        replayed = await model.replay().get()
        turned = await model.replay(**{key: value[::-1].copy() for key, value in given.items()}).get()
    away = float(np.abs(said - vectors).max())
    shortest, longest = given["lengths"].min(), given["lengths"].max()
    print(f"{len(texts)} texts of {shortest} to {longest} tokens: at most {away:.1e} from the reference")
    assert away < 1e-3
    assert np.allclose(replayed, said, rtol=0, atol=1e-6)
    assert np.allclose(turned, vectors[::-1], atol=1e-3)
    print(f"{len(model.nodes)} ops replayed as one message: the same vectors, and those of other texts")


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto"))
    except cb.BackendUnavailable as e:  # a package is missing
        print(e)
