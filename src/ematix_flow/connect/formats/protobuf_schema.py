"""Schemas of Protobuf as classes of messages: texts are compiled by protoc, and descriptors are taken as they are."""

from __future__ import annotations

import base64
import subprocess
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from ematix_flow.connect.base.scratch import scratch_folder
from ematix_flow.connect.formats.avro_schema import field_name, record_name
from ematix_flow.connect.formats.schema_decoders import require_module
from ematix_flow.errors import TransientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from ematix_flow.connect.schema_registry.base import Schema

MAIN = "ematix_flow_schema.proto"
SECONDS = 60.0
"""How long protoc may take."""

DECIMAL = "confluent.type.Decimal"
_BUILT_IN = {
    "confluent/type/decimal.proto": (
        'syntax = "proto3"; package confluent.type; '
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }"
    )
}
"""Files that schemas import without naming their location: Confluent's registry has them itself."""

_WELL_KNOWN = ("any", "descriptor", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")
_TIMESTAMP = "google.protobuf.Timestamp"


class SchemaTextError(ValueError):
    """A schema cannot be compiled; the message is for people."""


@dataclass(frozen=True, slots=True)
class Messages:
    """The messages that a schema declares at its top."""

    file: Any
    """Descriptor of the schema's own file."""

    def at(self, path: Sequence[int]) -> Any:
        """Return the class of a message by its numbers: the index in the file, then those inside messages."""
        descriptor = list(self.file.message_types_by_name.values())[path[0]]
        for number in path[1:]:
            descriptor = descriptor.nested_types[number]
        return _class_of(descriptor)

    def by_index(self, number: int) -> Any:
        """Return the class of a message by the index of its name among all names in order."""
        return _class_of(self._ordered()[number])

    def index_of(self, message_class: Any) -> int:
        """Return the index of a message's name among all names in order."""
        return [one.full_name for one in self._ordered()].index(message_class.DESCRIPTOR.full_name)

    def _ordered(self) -> list[Any]:
        return sorted(_all(self.file.message_types_by_name.values()), key=lambda one: str(one.full_name))


def _all(messages: Iterable[Any]) -> Iterator[Any]:
    for message in messages:
        yield message
        yield from _all(message.nested_types)


def _class_of(descriptor: Any) -> Any:
    return require_module("google.protobuf.message_factory", "protobuf").GetMessageClass(descriptor)


@lru_cache(maxsize=256)
def compiled(schema: Schema) -> Messages:
    """Return the messages of a schema; one that cannot be compiled is a `SchemaTextError`."""
    pools = require_module("google.protobuf.descriptor_pool", "protobuf")
    pool, last = pools.DescriptorPool(), MAIN
    try:
        for file in _files(schema):
            pool.AddSerializedFile(file.SerializeToString())
            last = file.name
        return Messages(pool.FindFileByName(last))
    except (TypeError, KeyError) as error:  # descriptors that do not belong together
        raise SchemaTextError(str(error)) from None


def _files(schema: Schema) -> Iterator[Any]:
    """Return the files of a schema as descriptors, its own last."""
    descriptors = require_module("google.protobuf.descriptor_pb2", "protobuf")
    own = _descriptor(schema.text)
    if own is None:
        yield from _by_protoc(schema).file
        return
    imports = [(name, _descriptor(text)) for name, text in schema.imports]
    if any(one is None for _, one in imports):
        raise SchemaTextError("it is a descriptor, and what it imports is text")
    files = [*(one for _, one in imports), own]
    for name in dict.fromkeys(name for one in files for name in one.dependency if name not in dict(imports)):
        yield descriptors.FileDescriptorProto.FromString(_well_known(name).DESCRIPTOR.serialized_pb)
    yield from files


def _well_known(name: str) -> Any:
    """Return one of the files that come with protobuf."""
    stem = PurePosixPath(name).stem
    if name != f"google/protobuf/{stem}.proto" or stem not in _WELL_KNOWN:
        raise SchemaTextError(f"it imports {name!r}, which the registry does not say")
    return require_module(f"google.protobuf.{stem}_pb2", "protobuf")


def _descriptor(text: str) -> Any:
    """Return the descriptor that a text is in base64, as some clients register it; None for the text of a schema."""
    descriptors = require_module("google.protobuf.descriptor_pb2", "protobuf")
    message = require_module("google.protobuf.message", "protobuf")
    try:
        return descriptors.FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, message.DecodeError):
        return None


def _by_protoc(schema: Schema) -> Any:
    tools = Path(str(require_module("grpc_tools", "protobuf").__file__)).parent
    with scratch_folder("protoc") as folder:
        _write(Path(folder), schema)
        out = Path(folder) / "out"
        include_paths = [f"-I{folder}", f"-I{tools / '_proto'}", *(f"-I{path}" for path in _common())]
        arguments = ["--include_imports", f"--descriptor_set_out={out}", *include_paths, MAIN]
        try:
            ran = subprocess.run(
                [sys.executable, "-m", "grpc_tools.protoc", *arguments],
                capture_output=True,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            message = f"protoc has not compiled schema {schema.id} within {SECONDS:.0f} seconds"
            raise TransientError(message) from None
        if ran.returncode:
            raise SchemaTextError(ran.stderr.decode(errors="replace").strip()[:300])
        return require_module("google.protobuf.descriptor_pb2", "protobuf").FileDescriptorSet.FromString(
            out.read_bytes()
        )


def _write(folder: Path, schema: Schema) -> None:
    for name, text in {**_BUILT_IN, **dict(schema.imports), MAIN: schema.text}.items():
        relative = PurePosixPath(name)
        if relative.is_absolute() or ".." in relative.parts:
            raise SchemaTextError(f"it imports {name!r}")
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def _common() -> list[str]:
    """Return where Google's shared types, as those of dates, are installed; most schemas do without."""
    spec = find_spec("google.type")
    locations = spec.submodule_search_locations if spec is not None else None
    return [str(Path(location).parents[1]) for location in locations or ()]


def derived(columns: Iterable[pa.Field], subject: str) -> str:
    """Return the schema of a message with these columns, each of them optional."""
    lines = [
        f"  optional {_proto_type(column.type)} {field_name(column.name)} = {number};"
        for number, column in enumerate(columns, 1)
    ]
    head = ['syntax = "proto3";']
    if any(_TIMESTAMP in line for line in lines):
        head.append('import "google/protobuf/timestamp.proto";')
    return "\n".join([*head, f"message {record_name(subject)} {{", *lines, "}", ""])


def _proto_type(kind: pa.DataType) -> str:
    """Return the type for an Arrow type; what Protobuf lacks is text."""
    import pyarrow as pa

    types = pa.types
    if types.is_boolean(kind):
        return "bool"
    if types.is_unsigned_integer(kind):
        return "uint64" if types.is_uint64(kind) else "uint32"
    if types.is_integer(kind):
        return "int64" if types.is_int64(kind) else "int32"
    if types.is_floating(kind):
        return "double" if types.is_float64(kind) else "float"
    if types.is_timestamp(kind):
        return _TIMESTAMP
    return "bytes" if types.is_binary(kind) or types.is_large_binary(kind) else "string"
