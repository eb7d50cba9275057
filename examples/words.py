"""A hash map on a device, drawn to a GIF: the words of a text are counted in batches, the most frequent as bars."""

import asyncio
import sys
import tempfile
from pathlib import Path

import numpy as np

import callboard as cb
from callboard.realtime.play.gif import write_gif

BYTES = 8
"""Of a key: longer words are cut."""


async def main(name: str, file: Path) -> None:
    text = (Path(__file__).parent / "README.md").read_text("utf-8").lower()
    words = ["".join(filter(str.isalpha, word))[:BYTES].encode()[:BYTES].ljust(BYTES) for word in text.split()]
    words = [word for word in words if word.strip()]
    pictures = []
    async with cb.device(name) as gpu, cb.GpuHashMapActor(gpu, key=BYTES, value="i4") as counts:
        for part in np.array_split(np.arange(len(words)), 8):
            await counts.insert_and_add([words[n] for n in part], 1)
            pictures.append(bars(np.sort((await counts.retrieve_all())[1])[::-1][:16]))
        keys, values = await counts.retrieve_all()
        (asked, _), found = await counts.find([b"device".ljust(BYTES), b"absent".ljust(BYTES)])
    write_gif(file, pictures, fps=4)
    assert found.tolist() == [True, False]
    assert values.sum() == len(words)
    most = keys[values.argmax()].tobytes().decode().strip()
    print(
        f"{len(words)} words, {len(keys)} different, most often {most!r}, 'device' {asked} times, {file.name} written"
    )


def bars(heights: np.ndarray) -> np.ndarray:
    picture = np.full((96, 128, 3), (13, 8, 30), "u1")
    for n, height in enumerate(heights * 90 // max(1, heights[0])):
        picture[94 - height : 95, 8 * n + 1 : 8 * n + 7] = (60, 190, 150)
    return picture


if __name__ == "__main__":
    where = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(tempfile.gettempdir()) / "words.gif"
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "auto", where))
