"""Errors that a server of models logs: each line has the label of its logger."""

from argosy.diagnostics.why.find import find_errors
from argosy.diagnostics.why.signatures import read_signatures

LABEL = "ERROR 04-03 18:30:13 [core.py:343] "
FRAMES = (
    '  File "/env/lib/python3.12/site-packages/vllm/v1/engine/core.py", line 335, in run',
    "    scores = self.score(batch)",
    '  File "/env/lib/python3.12/site-packages/vllm/model.py", line 12, in score',
    "    raise ValueError(batch)",
)


def _first(text: str) -> tuple[str, str]:
    errors = find_errors(text, read_signatures())
    return errors[0].level, errors[0].cause


def test_traceback_after_a_message_of_its_logger_is_read() -> None:
    head = f"{LABEL}EngineCore hit an exception: Traceback (most recent call last):"
    body = (*FRAMES, "ValueError: 330 tokens for 332 placeholders")
    level, cause = _first("\n".join([head, *(LABEL + line for line in body)]))
    assert level == "cause"
    assert "ValueError: 330 tokens for 332 placeholders at model.py:12" in cause


def test_traceback_after_an_unfinished_progress_bar_and_a_label_is_read() -> None:
    head = f"Processed prompts:  47%|███   | 30/64 [00:{LABEL}EngineCore failed: Traceback (most recent call last):"
    body = (*FRAMES, "ValueError: 330 tokens for 332 placeholders")
    level, cause = _first("\n".join([head, *(LABEL + line for line in body)]))
    assert level == "cause"
    assert "ValueError: 330 tokens for 332 placeholders" in cause


def test_end_of_a_labelled_traceback_without_its_head_is_the_cause() -> None:
    body = (*FRAMES, "ValueError: 330 tokens for 332 placeholders")
    level, cause = _first("\n".join(LABEL + line for line in body))
    assert level == "cause"
    assert cause == "the program ended with ValueError: 330 tokens for 332 placeholders"


def test_message_is_quoted_without_the_label_of_its_logger() -> None:
    _, cause = _first(f"{LABEL}no heartbeat received from the engine\nINFO: Shutting down")
    assert cause == "the program reports 'no heartbeat received from the engine'"


def test_arguments_of_a_server_are_not_a_failed_connection() -> None:
    text = "server_args=ServerArgs(model_path='m', host='127.0.0.1', port=30000, tp_size=1)\nLoad weight begin."
    assert not find_errors(text, read_signatures())


def test_a_warning_about_an_optional_extension_is_not_the_cause() -> None:
    warning = "WARNING 12-13 12:50:45 _logger.py:68] Failed to import from vllm._C with No module named 'vllm._C'"
    raised = ("Traceback (most recent call last):", *FRAMES, "TypeError: forward() takes 14 arguments")
    level, cause = _first("\n".join([warning, *raised]))
    assert level == "cause"
    assert "TypeError: forward() takes 14 arguments" in cause


def test_memory_error_of_an_attention_kernel_is_that_of_the_gpu() -> None:
    _, cause = _first("RuntimeError: BatchDecodeWithPagedKVCache failed with error out of memory")
    assert cause == "the GPU does not have enough free memory for the next tensor"


def test_annotated_assignment_of_an_unindented_traceback_is_not_an_exception() -> None:
    code = "outputs: Outputs = self.schedule()"
    raised = ("Traceback (most recent call last):", FRAMES[0], code, *FRAMES[2:], "ValueError: no free block")
    assert "ValueError: no free block" in _first("\n".join(raised))[1]


def test_cleaning_up_shared_memory_does_not_hide_the_error() -> None:
    raised = ("Traceback (most recent call last):", *FRAMES, "ValueError: no free block")
    tracker = '  File "/env/lib/python3.12/multiprocessing/resource_tracker.py", line 209, in main'
    after = ("Traceback (most recent call last):", tracker, "    cache[rtype].remove(name)", "KeyError: '/mp-0je2dy8c'")
    assert "ValueError: no free block" in _first("\n".join((*raised, *after)))[1]
    assert not find_errors("\n".join(after), read_signatures())
