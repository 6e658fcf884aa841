"""Tables that the pages take from the product itself: the kinds' fields and rules, and the settings.

They are Markdown, made anew in each build from the definitions and the settings' own classes, so they cannot be out of
date; nothing of them is kept in the repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic.fields import FieldInfo

from watcher.settings import WatcherSettings
from worker.settings import PREFIX, ConnectionSettings, WorkerSettings

CRDS = Path(__file__).parents[1] / "deploy" / "crds"
Schema = dict[str, Any]

_NOT_SAID = ("apiVersion", "kind", "metadata")
_BOUNDS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minItems", "at least {} entries"),
    ("maxItems", "at most {} entries"),
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
)
_SETTING_BOUNDS = (
    ("ge", "from {}"),
    ("gt", "more than {}"),
    ("le", "to {}"),
    ("lt", "less than {}"),
    ("min_length", "at least {} characters"),
)


def definition(plural: str) -> Schema:
    """A CustomResourceDefinition of deploy/crds by its plural."""
    return dict(yaml.safe_load((CRDS / f"{plural}.yaml").read_text()))


def fields(plural: str, part: str) -> str:
    """The fields of `spec` or `status`, one a row, nested ones by their path."""
    schema = _schema(plural)["properties"][part]
    rows = [
        (f"`{path}`", _type(field), "yes" if required else "", _bounds(field), _text(field.get("description", "")))
        for path, field, required in _walk(schema, "")
    ]
    head = ("field", "type", "required", "bounds and default", "meaning")
    return f"{_text(schema.get('description', ''))}\n\n{_table(head, rows)}"


def rules(plural: str) -> str:
    """The CEL rules of the definition, and of the admission policy beside it if there is one."""
    rows = [
        (f"`{path}`" if path else "the object", _code(rule["rule"]), _text(rule["message"]))
        for path, rule in validations(plural)
    ]
    return _table(("about", "CEL", "what is said"), rows)


def validations(plural: str) -> list[tuple[str, Schema]]:
    """Every rule with the path of what it is about."""
    schema = _schema(plural)
    found = [
        (rule.get("fieldPath", "").removeprefix(".") or "", rule) for rule in schema.get("x-kubernetes-validations", [])
    ]
    for part in ("spec", "status"):
        root = schema["properties"].get(part, {})
        for path, field in [(part, root), *((f"{part}.{path}", field) for path, field, _ in _walk(root, ""))]:
            found += [(path + rule.get("fieldPath", ""), rule) for rule in field.get("x-kubernetes-validations", [])]
    return found + [("", rule) for rule in _policy(plural)]


def columns(plural: str) -> str:
    """What `kubectl get` shows."""
    shown = _version(plural)["additionalPrinterColumns"]
    return _table(("column", "taken from"), [(each["name"], _code(each["jsonPath"])) for each in shown])


def settings(program: str) -> str:
    """The settings of `both` programs, or those that the `worker` or the `watcher` alone has."""
    classes = {"both": ConnectionSettings, "worker": WorkerSettings, "watcher": WatcherSettings}
    own = classes[program].model_fields
    shared = ConnectionSettings.model_fields if program != "both" else {}
    rows = [
        (f"`{PREFIX}{name.upper()}`", _default(field), _text(_first(field.description or "")), _allowed(field))
        for name, field in own.items()
        if name not in shared
    ]
    return _table(("variable", "default", "what it is", "bounds"), rows)


# -- inner parts --------------------------------------------------------------------------------------------------


def _version(plural: str) -> Schema:
    (version,) = definition(plural)["spec"]["versions"]
    return dict(version)


def _schema(plural: str) -> Schema:
    return dict(_version(plural)["schema"]["openAPIV3Schema"])


def _policy(plural: str) -> list[Schema]:
    file = CRDS / f"{plural}-policy.yaml"
    if not file.exists():
        return []
    policy = next(iter(yaml.safe_load_all(file.read_text())))
    return [{"rule": each["expression"], "message": each["message"]} for each in policy["spec"]["validations"]]


def _walk(schema: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Every field below, with its path and whether it must be there."""
    for name, field in schema.get("properties", {}).items():
        if not path and name in _NOT_SAID:
            continue
        here = f"{path}.{name}" if path else name
        yield here, field, name in schema.get("required", ())
        yield from _walk(field, here)
        if "items" in field:
            items = field["items"]
            if not items.get("properties"):
                yield f"{here}[]", items, False
            yield from _walk(items, f"{here}[]")


def _type(field: Schema) -> str:
    if field.get("type") == "array":
        return "map by `" + field["x-kubernetes-list-map-keys"][0] + "`" if _map(field) else "list"
    return str(field.get("format") or field.get("type", "")) if field.get("format") != "int64" else "integer"


def _map(field: Schema) -> bool:
    return field.get("x-kubernetes-list-type") == "map"


def _bounds(field: Schema) -> str:
    said = [words.format(field[key]) for key, words in _BOUNDS if key in field]
    said += ["one of " + ", ".join(f"`{each}`" for each in field["enum"])] if "enum" in field else []
    said += [_code(field["pattern"])] if "pattern" in field else []
    said += [f"default `{field['default']}`"] if "default" in field else []
    return "; ".join(said)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be set"
    return (
        ""
        if field.default in (None, "")
        else f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"
    )


def _allowed(field: FieldInfo) -> str:
    said = ((words, getattr(bound, name, None)) for bound in field.metadata for name, words in _SETTING_BOUNDS)
    return " ".join(words.format(value) for words, value in said if value is not None)


def _first(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text else ""


def _text(text: str) -> str:
    """Plain text as Markdown says it."""
    return re.sub(r"([\\`*_\[\]<>|$])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """Code within a cell, where a bar would end it."""
    return "`" + " ".join(text.split()).replace("|", "\\|") + "`"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
