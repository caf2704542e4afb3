"""What every connection is: a name, typed settings and a repr without secrets; it resolves and opens nothing."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, ClassVar

from ematix_flow.declare.connection.frame_methods import FrameMethods
from ematix_flow.declare.masking import REDACTED, is_secret_field, mask_value
from ematix_flow.declare.origin import caller_origin
from ematix_flow.errors import DeclareError, DeclareTypeError, did_you_mean

if TYPE_CHECKING:
    from ematix_flow.errors import Origin

_NOT_SETTINGS = frozenset({"name", "origin", "written"})
_TRUE_VALUES = frozenset({"true", "yes", "on", "1"})
_FALSE_VALUES = frozenset({"false", "no", "off", "0"})


def is_open(value: object) -> bool:
    """Return whether a setting still holds a `${...}` reference, so that its content cannot be judged yet."""
    return isinstance(value, str) and "${" in value


@dataclass(frozen=True, slots=True, repr=False)
class Connection(FrameMethods):
    """A named system where data is stored; settings may hold `${...}` references."""

    kind: ClassVar[str] = ""
    required: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Field -> the words it may hold."""
    spellings: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Field -> accepted spelling -> the name it stands for."""

    name: str
    origin: Origin | None = field(default=None, compare=False, kw_only=True)
    """Where the connection was declared."""
    written: Connection | None = field(default=None, compare=False, kw_only=True)
    """The connection as the user wrote it, when this one has its references filled in; the only one ever shown."""

    def __post_init__(self) -> None:
        self._set("origin", self.origin or caller_origin())
        if not isinstance(self.name, str) or not self.name:
            raise DeclareTypeError(f"a {self.kind or 'plain'} connection needs a name", origin=self.origin)
        for setting in fields(self):
            if setting.name not in _NOT_SETTINGS:
                self._set(setting.name, self._typed(setting.name, str(setting.type), getattr(self, setting.name)))
        missing = [name for name in self._required_fields() if getattr(self, name) in ("", None)]
        if missing:
            raise self._wrong(f"needs {', '.join(missing)}")
        for name, allowed in self.choices.items():
            self._check_choice(name, allowed)
        self._check_family()
        self._check()

    def _required_fields(self) -> tuple[str, ...]:
        """Return the fields that must not be empty."""
        return self.required

    def _check_family(self) -> None:
        """Refuse settings that no kind of this family can use."""

    def _check(self) -> None:
        """Refuse settings that contradict each other."""

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _wrong(self, what: str, hint: str | None = None) -> DeclareError:
        return DeclareError(f"{self.kind} connection {self.name!r} {what}", hint=hint, origin=self.origin)

    def _typed(self, name: str, annotation: str, value: object) -> object:
        """Return a setting in the type of its field; texts come from TOML, the environment and `${...}`."""
        if value is None or is_open(value):
            return value
        base = annotation.removesuffix(" | None")
        try:
            typed = _READERS.get(base, _unchanged)(value)
        except ValueError:
            raise self._wrong(f"cannot use its {name}", f"{name} must be {_TYPE_NAMES[base]}.") from None
        except TypeError:
            message = f"{self.kind} connection {self.name!r}: {name} must be {_TYPE_NAMES[base]}"
            raise DeclareTypeError(message, origin=self.origin) from None
        return typed

    def _check_choice(self, name: str, allowed: tuple[str, ...]) -> None:
        value = getattr(self, name)
        if not isinstance(value, str) or not value or is_open(value):
            return
        choice = next((known for known in allowed if known.lower() == value.lower()), value.lower())
        choice = self.spellings.get(name, {}).get(choice, choice)
        if choice not in allowed:
            # The value itself stays out of the message: it may have come out of a secret store.
            raise self._wrong(f"has an unknown {name}", did_you_mean(choice, allowed))
        self._set(name, choice)

    def settings(self) -> dict[str, object]:
        """Return every field of the kind with its value."""
        return {name: getattr(self, name) for name in setting_names(type(self))}

    def described(self, replacement: str = REDACTED) -> dict[str, object]:
        """Return every field as it may be shown."""
        return masked((self.written or self).settings(), replacement)

    def __repr__(self) -> str:
        pairs = "".join(f", {name}={value!r}" for name, value in self.described().items())
        return f"{type(self).__name__}(name={self.name!r}, kind={self.kind!r}{pairs})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


def setting_names(cls: type[Connection]) -> tuple[str, ...]:
    """Return the names of the fields that belong to a kind, the optional extras last."""
    ordered = sorted(fields(cls), key=lambda setting: setting.kw_only is True)
    return tuple(setting.name for setting in ordered if setting.name not in _NOT_SETTINGS)


def masked(settings: Mapping[str, object], replacement: str = REDACTED) -> dict[str, object]:
    """Return settings as they may be shown."""
    return {name: _masked(name, value, replacement) for name, value in settings.items()}


def _masked(name: str, value: object, replacement: str) -> object:
    if value is None or isinstance(value, bool | Connection):
        return value
    if is_secret_field(name) and value != "":
        return replacement
    if isinstance(value, Mapping):
        return masked(value, replacement)
    return mask_value(value, replacement) if isinstance(value, str) else value


def _unchanged(value: object) -> object:
    return value


def _to_text(value: object) -> str:
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return ",".join(value)
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if not isinstance(value, str):
        raise TypeError
    return value


def _to_int(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return int(value)


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise TypeError
    if value.lower() in _TRUE_VALUES | _FALSE_VALUES:
        return value.lower() in _TRUE_VALUES
    raise ValueError


def _options(value: object) -> dict[str, object]:
    parsed = json.loads(value) if isinstance(value, str) else value
    if not isinstance(parsed, Mapping):
        raise TypeError
    return dict(parsed)


_READERS = {"str": _to_text, "int": _to_int, "bool": _flag, "Options": _options}
_TYPE_NAMES = {"str": "text", "int": "a whole number", "bool": "true or false", "Options": "a table of options"}
