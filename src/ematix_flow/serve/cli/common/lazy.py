"""Groups of commands whose modules are imported when one of them is called; help needs none of them."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from ematix_flow.errors import nearest
from ematix_flow.serve.cli.common.errors import USAGE

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """Where a command is defined, and its text in the list of commands."""

    module: str
    """Name of a module below `commands`."""
    name: str
    summary: str
    section: str = "Commands"


class NearGroup(click.Group):
    """A group that answers an unknown command with the nearest known one."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Answer a group without a command with its help."""
        if not args and not ctx.resilient_parsing and not self.invoke_without_command:
            click.echo(ctx.get_help(), err=True)
            ctx.exit(USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that a line names."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            match = nearest(args[0], known)
            hint = f" Did you mean {match!r}?" if match else f" There are: {', '.join(known)}."
            raise click.UsageError(f"there is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)


class LazyGroup(NearGroup):
    """A group that knows its commands by their modules."""

    def __init__(self, *arguments: Any, entries: Mapping[str, CommandEntry], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.entries = entries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order they were declared, which is the order of their use."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None when there is none of this name."""
        del ctx
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        command = getattr(importlib.import_module(f"ematix_flow.serve.cli.commands.{entry.module}"), entry.name)
        assert isinstance(command, click.Command)  # noqa: S101 - a wrong entry in the table
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section, without importing any."""
        del ctx
        widest = max(len(name) for name in self.entries)
        for section in dict.fromkeys(entry.section for entry in self.entries.values()):
            rows = [(n.ljust(widest), p.summary) for n, p in self.entries.items() if p.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)
