"""Template tags for links: `{% link 'queue' vhost name %}`. Built in: no `{% load %}` needed."""

from typing import Any

from django import template

from management import paths

register = template.Library()


@register.simple_tag
def link(view_name: str, *names: Any, **named: Any) -> str:
    """The path of a view, with every name in it quoted exactly once."""
    return paths.link(view_name, *names, **named)
