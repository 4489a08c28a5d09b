"""The meaning of Python's exceptions: each entry fits its own example, and no name stays unfilled."""

from __future__ import annotations

import re

import pytest

from argosy.diagnostics.why.phrases import Reason, explain_exception, read_reasons


@pytest.mark.parametrize("reason", read_reasons(), ids=lambda each: each.example)
def test_each_meaning_is_that_of_its_example(reason: Reason) -> None:
    package = reason.package.strip("^$()").split("|")[0]
    found = explain_exception(reason.example, reason.example_code, package)
    template = re.sub(r"\\\{\w+\\\}", ".*", re.escape(reason.says))
    assert re.fullmatch(template.removesuffix(":\\ .*") + ".*", found.says)
    assert not re.search(r"\{\w+\}", " ".join([found.says, *found.often]).replace("${SLURM_NTASKS:?}", ""))


def test_the_line_of_the_program_names_the_value() -> None:
    found = explain_exception("KeyError: 'lr'", "return cfg['train']['lr']", "")
    assert found.says == "cfg has no key 'lr'"
    assert explain_exception("KeyError: 'lr'", "run(cfg)", "").says == "a table or dictionary has no key 'lr'"
    assert explain_exception("KeyError: 'lr'", "x = df['lr']", "pandas").says == "the table has no column or label 'lr'"


def test_an_exception_of_the_program_itself_needs_no_explanation() -> None:
    assert explain_exception("ConfigError: no field batch_size", "raise ConfigError(text)", "").says == ""
