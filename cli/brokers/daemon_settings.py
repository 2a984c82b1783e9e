"""Settings of NameServers or controllers that run, as rows of a command's output, by the address of each."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import click

__all__ = ["changed_rows", "check_names", "matching_rows"]


def matching_rows(configs: Mapping[str, Mapping[str, str]], *, daemon: str, match: str) -> Iterator[dict[str, str]]:
    """The settings whose name contains `match`, whatever its case. `daemon`: the column of the addresses."""
    return (
        {daemon: address, "name": name, "value": value}
        for address, values in configs.items()
        for name, value in sorted(values.items())
        if match.lower() in name.lower()
    )


def changed_rows(
    configs: Mapping[str, Mapping[str, str]], *, daemon: str, names: Collection[str]
) -> Iterator[dict[str, str | None]]:
    """The settings with these names. `daemon`: the column of the addresses."""
    return (
        {daemon: address, "name": name, "value": values.get(name)}
        for address, values in configs.items()
        for name in names
    )


def check_names(configs: Mapping[str, Mapping[str, str]], names: Collection[str]) -> None:
    """
    Raises:
        ClickException: One of the daemons has no setting of such a name.
    """
    for address, values in configs.items():
        unknown = sorted({*names} - values.keys())
        if unknown:
            raise click.ClickException(f"{address} has no setting {', '.join(unknown)}.")
