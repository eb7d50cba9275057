"""An inference request and its response on the wire: JSON, followed by raw tensor data if the client requests that.

Source: the Open Inference Protocol, and its binary tensor extension as Triton documents it.
"""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from callboard.serve.encoding.flat import LONG, check_length, cut
from callboard.serve.encoding.payload import finite, from_binary, from_json
from callboard.serve.encoding.regions import Place, Regions
from callboard.serve.encoding.results import json_weight, to_binary, to_binary_pieces, to_json_pieces, to_json_text
from callboard.serve.errors import BadRequest
from callboard.serve.tensors import Array, Tensor

__all__ = [
    "HEADER_LENGTH",
    "InSequence",
    "InferBody",
    "InferRequest",
    "encoded",
    "encoding_weight",
    "parsed",
    "weight_of",
]

HEADER_LENGTH = "inference-header-content-length"
"""The HTTP header with the length of a message's JSON, after which raw tensor data begin."""
CURE = "send tensors as raw data after it, with binary_data_size, or numbers as flat lists"
COPIED = 16
"""Bytes that are copied in the time in which one becomes JSON."""
MICROSECOND = 1e-6
HIGHEST = 1
"""The most urgent priority of the protocol, where a larger number is less urgent. 0 and none count as this one."""


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = None


class _Output(msgspec.Struct):
    name: str
    parameters: dict[str, Any] = {}


class InferBody(msgspec.Struct):
    """The JSON of an inference request."""

    inputs: list[_Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[_Output] = []


class InSequence(msgspec.Struct, frozen=True):
    """The sequence that a request belongs to, by Triton's sequence extension.

    Attributes:
        id: Its name, which the client has chosen.
        start: It begins the sequence.
        end: It ends the sequence.
    """

    id: int | str
    start: bool
    end: bool


class InferRequest(msgspec.Struct, frozen=True):
    """A request that was read and checked.

    Attributes:
        id: The client's name of it, repeated in the response.
        arrays: The inputs, in the order in which the model declares them.
        outputs: Outputs in the response: tensors, and whether they are sent as raw bytes.
        priority: Priority in the order of the blueprints: larger is more urgent.
        timeout: Seconds; None if the client set no limit.
        places: Destinations in shared memory of the outputs that are not part of the response, by name.
        sequence: Sequence of the request; None if the client names none.
    """

    id: str
    arrays: tuple[Any, ...]
    outputs: tuple[tuple[Tensor, bool], ...]
    priority: int
    timeout: float | None
    places: dict[str, Place] = {}
    sequence: InSequence | None = None


_decoder = msgspec.json.Decoder(InferBody)

DIGITS = 18
"""Of a length at most: Python refuses to read thousands of them."""


def parsed(
    body: memoryview,
    header_length: str | None,
    inputs: list[Tensor],
    outputs: list[Tensor],
    regions: Regions | None = None,
) -> InferRequest:
    """Read a request.

    Args:
        body: All of it, not compressed.
        header_length: The value of the header :data:`HEADER_LENGTH`, if there is one.
        inputs: Inputs of the model.
        outputs: Outputs of the model.
        regions: Shared memory that tensors may be in.

    Raises:
        BadRequest: The request is malformed or does not fit the model; says why.
        HttpError: Its JSON is too long to be read at once (413).
    """
    end = _end_of_json(header_length, len(body))
    text, lists = (body[:end], []) if end < LONG else cut(bytes(body[:end]))
    check_length(text, CURE)
    request = _decoded(text)
    for each in request.inputs:
        number = each.data.get("") if lists and isinstance(each.data, dict) else None
        if type(number) is int and 0 <= number < len(lists):
            each.data = lists[number]
    arrays = _arrays(request, body[end:], inputs, regions)
    raw = _flag(request.parameters, "binary_data_output", False)
    chosen = _chosen(request, raw, outputs) if request.outputs else [(tensor, raw) for tensor in outputs]
    places = {each.name: place for each in request.outputs if (place := Place.of(each.parameters)) is not None}
    if places:
        _needed(regions)
    level = _number(request.parameters, "priority") or HIGHEST
    timeout = _number(request.parameters, "timeout")
    return InferRequest(
        id=request.id,
        arrays=arrays,
        outputs=tuple(chosen),
        priority=HIGHEST - level,
        timeout=timeout * MICROSECOND if timeout else None,
        places=places,
        sequence=_sequence(request.parameters),
    )


def weight_of(size: int, header_length: str | None, inputs: list[Tensor]) -> int:
    """The bytes of a body of this size that are read one by one; raw numbers are not.

    Raises:
        BadRequest: As for :func:`parsed`.
    """
    return size if any(tensor.datatype == "BYTES" for tensor in inputs) else _end_of_json(header_length, size)


def _decoded(text: bytes | memoryview) -> InferBody:
    """The JSON of a request. Clients of Triton write NaN and Infinity as such, which JSON does not have."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as e:
        wrong: Exception = e
    content = bytes(text)
    if b"NaN" in content or b"Infinity" in content:
        try:
            found = json.loads(content.decode(), parse_float=finite)
            msgspec.json.encode(found)  # raises for half of a surrogate pair, which is no text
            return msgspec.convert(found, InferBody)
        except (ValueError, OverflowError, RecursionError) as e:  # the decoders' errors are ValueErrors
            wrong = e
    raise BadRequest(f"the body is not an inference request: {wrong}") from wrong


def _chosen(request: InferBody, raw: bool, outputs: list[Tensor]) -> list[tuple[Tensor, bool]]:
    """The outputs that a request asks for by name, each with whether as raw bytes."""
    known = {tensor.name: tensor for tensor in outputs}
    unknown = next((each.name for each in request.outputs if each.name not in known), None)
    if unknown is not None:
        raise BadRequest(f"the model has no output {unknown!r}; it has {', '.join(map(repr, known))}")
    found: dict[str, tuple[Tensor, bool]] = {}
    for each in request.outputs:
        if each.name in found:
            raise BadRequest(f"output {each.name!r} is requested twice")
        found[each.name] = known[each.name], _flag(each.parameters, "binary_data", raw)
    return list(found.values())


def _end_of_json(header_length: str | None, size: int) -> int:
    if header_length is None:
        return size
    digits = header_length.isascii() and header_length.isdigit() and len(header_length) <= DIGITS
    if not digits or int(header_length) > size:
        raise BadRequest(f"{HEADER_LENGTH} is {header_length[: DIGITS + 1]!r}, and the body has {size} bytes")
    return int(header_length)


def _needed(regions: Regions | None) -> Regions:
    if regions is None:
        raise BadRequest("this server takes no tensors in shared memory: the app has no shared_memory")
    return regions


def _arrays(request: InferBody, raw: memoryview, inputs: list[Tensor], regions: Regions | None) -> tuple[Array, ...]:
    known = {tensor.name: tensor for tensor in inputs}
    found: dict[str, Array] = {}
    position = 0
    for each in request.inputs:
        tensor = known.get(each.name)
        if tensor is None:
            raise BadRequest(f"the model has no input {each.name!r}; it takes {', '.join(map(repr, known))}")
        if each.name in found:
            raise BadRequest(f"input {each.name!r} occurs twice")
        tensor.check_request(each.datatype, each.shape)
        place = Place.of(each.parameters) if each.parameters else None
        if place is not None:
            if each.data is not None or "binary_data_size" in each.parameters:
                raise BadRequest(f"input {each.name!r} is in shared memory, and has data as well")
            found[each.name] = from_binary(tensor, each.shape, _needed(regions).read(place))
            continue
        size = _number(each.parameters, "binary_data_size", None)
        if size is None:
            found[each.name] = from_json(tensor, each.shape, each.data)
            continue
        if each.data is not None:
            raise BadRequest(f"input {each.name!r} has both data and binary_data_size")
        if size > len(raw) - position:
            raise BadRequest(
                f"input {each.name!r}: binary_data_size is {size}, and {len(raw) - position} bytes are left"
            )
        found[each.name] = from_binary(tensor, each.shape, raw[position : position + size])
        position += size
    missing = next((name for name in known if name not in found), None)
    if missing is not None:
        raise BadRequest(f"input {missing!r} is missing")
    if position != len(raw):
        raise BadRequest(f"{len(raw) - position} bytes follow the last input")
    return tuple(found[name] for name in known)


def _sequence(parameters: dict[str, Any]) -> InSequence | None:
    found = parameters.get("sequence_id", 0)
    if isinstance(found, bool) or not isinstance(found, int | str):
        raise BadRequest(f"the parameter sequence_id must be an integer or a string, but is {found!r}")
    start, end = (_flag(parameters, name, False) for name in ("sequence_start", "sequence_end"))
    if found in (0, ""):  # clients of Triton send these for none
        if start or end:
            raise BadRequest("sequence_start and sequence_end need sequence_id, which names the sequence")
        return None
    return InSequence(found, start, end)


def _flag(parameters: dict[str, Any], name: str, default: bool) -> bool:
    value = parameters.get(name, default)
    if not isinstance(value, bool):
        raise BadRequest(f"the parameter {name} must be true or false, but is {value!r}")
    return value


def _number(parameters: dict[str, Any], name: str, default: int | None = 0) -> int | None:
    value = parameters.get(name, default)
    if value is default:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 64:
        raise BadRequest(f"the parameter {name} must be an integer of at least 0 and below 2**64, but is {value!r}")
    return value


def encoding_weight(request: InferRequest, results: dict[str, Array], most: int) -> int:
    """Bytes of outputs that become JSON one by one, about; texts are counted up to ``most``, raw numbers hardly."""
    return sum(
        results[tensor.name].nbytes // COPIED
        if raw and tensor.datatype != "BYTES"
        else json_weight(tensor, results[tensor.name], most)
        for tensor, raw in request.outputs
    )


def encoded(
    name: str, version: str, request: InferRequest, results: dict[str, Array], regions: Regions | None = None
) -> tuple[list[bytes | memoryview], dict[str, str]]:
    """The response: the parts of its body, and its headers.

    Raises:
        BadRequest: Bytes that are not UTF-8 were requested as JSON, or an output does not fit into its place.
    """
    outputs: list[dict[str, Any]] = []
    parts: list[bytes | memoryview] = []
    long: dict[int, Iterator[bytes]] = {}
    at_once = LONG
    for tensor, binary in request.outputs:
        array = results[tensor.name]
        output: dict[str, Any] = {"name": tensor.name, "shape": array.shape, "datatype": tensor.datatype}
        place = request.places.get(tensor.name)
        if place is not None:
            data = to_binary(tensor, array)
            _needed(regions).write(place, data)
            output["parameters"] = place.parameters(len(data))
        elif binary:
            pieces = to_binary_pieces(tensor, array)
            parts += pieces
            output["parameters"] = {"binary_data_size": sum(map(len, pieces))}
        elif (weight := json_weight(tensor, array, LONG)) <= at_once:
            at_once -= weight
            output["data"] = to_json_text(tensor, array)
        else:
            long[len(outputs)] = to_json_pieces(tensor, array)
        outputs.append(output)
    head: dict[str, Any] = {"model_name": name, "model_version": version}
    if request.id:
        head["id"] = request.id
    texts = _in_pieces(head, outputs, long) if long else [msgspec.json.encode({**head, "outputs": outputs})]
    if not parts:
        return [*texts], {"content-type": "application/json"}
    length = sum(map(len, texts))
    return [*texts, *parts], {"content-type": "application/octet-stream", HEADER_LENGTH: str(length)}


def _in_pieces(head: dict[str, Any], outputs: list[dict[str, Any]], long: dict[int, Iterator[bytes]]) -> list[bytes]:
    """The JSON of a response whose long outputs are given apart, by their positions."""
    texts = [msgspec.json.encode(head)[:-1] + b',"outputs":[']
    for i, output in enumerate(outputs):
        text = msgspec.json.encode(output)
        texts += [b"," * (i > 0), *([text[:-1] + b',"data":', *long[i], b"}"] if i in long else [text])]
    return [*texts, b"]}"]
