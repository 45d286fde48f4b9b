"""Templates: takes a template's name and its values, gives HTML in which every value is text."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

_TEMPLATES = Environment(
    loader=PackageLoader("trainonce.runs.report"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def render(template: str, **values: Any) -> str:
    """The page; a value that the template asks for and doesn't get is an error."""
    return _TEMPLATES.get_template(template).render(**values)
