"""From a log to a report: ranks, prefixes, tracebacks, source files, findings, exit status."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from torchmemlint.findings import Confidence, Finding, Position, Severity, Span
from torchmemlint.oom import cases, command
from torchmemlint.oom.log_line import read_line
from torchmemlint.oom.stream import PIECE, scan
from torchmemlint.oom.traceback import find_local, is_library, read_traceback

HEADER = "Traceback (most recent call last)"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {q}.00 MiB. GPU {gpu} has a total capacity of 23.69 GiB of "
    "which 31.00 MiB is free. Including non-PyTorch memory, this process has 23.64 GiB memory in use. Of the allocated memory "
    "22.95 GiB is allocated by PyTorch, and 120.30 MiB is reserved by PyTorch but unallocated."
)


def traceback_lines(rank: int, file: str = "/home/me/proj/train.py") -> list[str]:
    return [
        "Traceback (most recent call last):",
        f'  File "{file}", line {10 + rank}, in <module>',
        "    main()",
        f'  File "{file}", line {20 + rank}, in train_step',
        "    loss = model(x)",
        "           ^^^^^^^^",
        '  File "/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", line 1739, in _call_impl',
        "    return forward_call(*args, **kwargs)",
        OOM.format(q=200 + rank, gpu=rank),
    ]


@pytest.mark.parametrize(
    ("raw", "source", "text"),
    [
        ("[rank3]: RuntimeError: x", "rank3", "RuntimeError: x"),
        ('[rank3]:   File "a.py", line 3, in f', "rank3", '  File "a.py", line 3, in f'),
        ("(pid=123) boom", "pid=123", "boom"),
        ("(RayTrainWorker pid=7, ip=10.0.0.3) boom", "RayTrainWorker pid=7, ip=10.0.0.3", "boom"),
        ("[1,0]<stderr>:boom", "1,0", "boom"),
        ("[default2]:[rank2]: boom", "default2 rank2", "boom"),
        ("3: boom", "3", "boom"),
        ("node-12: boom", "node-12", "boom"),
        ("2026-03-02T11:20:31.114Z stderr F boom", "", "boom"),
        ("[2026-03-02 11:20:31,114][ERROR] boom", "", "boom"),
        ("2026-03-02 11:20:31,114 - ERROR - boom", "", "boom"),
        ("ERROR 06-09 06:57:48 worker_base.py:581]     return fn(x)", "", "    return fn(x)"),
        ("\x1b[31m[rank0]\x1b[0m: \x1b]8;;http://x\x07boom\x1b]8;;\x07", "rank0", "boom"),
        (" 10%|#         | 1/10\r 20%|##        | 2/10\rboom", "", "boom"),
        ('{"log":"boom \\"a\\"\\n","stream":"stderr"}', "", 'boom "a"'),
        ("│   boom          │", "", "  boom"),
        ('    x = a["b"]', "", '    x = a["b"]'),
    ],
)
def test_prefixes_go_and_indentation_stays(raw: str, source: str, text: str) -> None:
    line = read_line(raw)
    assert (line.source, line.text) == (source, text)


def test_interleaved_ranks_keep_their_own_tracebacks() -> None:
    ranks = [[f"[rank{rank}]: {line}" for line in traceback_lines(rank)] for rank in range(4)]
    lines = [ranks[rank][row] for row in range(len(ranks[0])) for rank in range(4)]
    log = cases.read_log("log", io.BytesIO("\n".join(lines).encode()))
    assert [(case.source, case.message.device, case.row) for case in log.cases] == [
        (f"rank{rank}", rank, len(lines) - 3 + rank) for rank in range(4)
    ]
    for rank, case in enumerate(log.cases):
        assert [(frame.row, frame.function) for frame in case.frames] == [
            (10 + rank, "<module>"),
            (20 + rank, "train_step"),
            (1739, "_call_impl"),
        ]
        assert case.frames[1].code == "loss = model(x)"


def test_a_message_wrapped_while_another_rank_writes_in_between() -> None:
    words = OOM.format(q=200, gpu=0)
    lines = [f"[rank0]: {words[:80]}", "[rank1]: step 12", f"[rank0]: {words[80:]}"]
    (found,) = scan(io.BytesIO("\n".join(lines).encode()))
    assert found.message.unallocated == round(120.30 * 2**20)


def test_repetitions_are_counted_once() -> None:
    text = "\n".join([*traceback_lines(0), "ERROR:root:" + OOM.format(q=200, gpu=0), "other"])
    log = cases.read_log("log", io.BytesIO(text.encode()))
    assert [case.times for case in log.cases] == [2]


def test_more_messages_than_are_kept_end_with_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cases, "MAX_CASES", 8)
    text = "\n".join(OOM.format(q=number, gpu=0) for number in range(1, 26))
    log = cases.read_log("log", io.BytesIO(text.encode()))
    assert len(log.cases) == 8 + 1
    assert log.cases[-1].message.requested == 25 * 2**20
    assert log.uncounted == 25 - 8 - 1


def test_a_hint_stands_behind_a_certain_message() -> None:
    text = "RuntimeError: DataLoader worker (pid 3) is killed by signal: Killed. \n" + OOM.format(q=1, gpu=0)
    log = cases.read_log("log", io.BytesIO(text.encode()))
    assert [case.certain for case in log.cases] == [True, False]


@pytest.mark.parametrize("offset", [0, 1, 40, 300, 8_000, 16_384, 20_000])
def test_a_message_on_the_border_of_two_pieces_is_found_with_its_row(offset: int) -> None:
    filler = b"step 000001 loss 0.1\n"
    head = b"".join([filler] * ((PIECE - offset) // len(filler)))
    text = head + "\n".join(traceback_lines(2)).encode() + b"\n" + filler * 30_000
    (found,) = scan(io.BytesIO(text))
    assert found.row == text[: text.index(b"torch.OutOfMemoryError")].count(b"\n") + 1
    assert found.message.device == 2
    assert read_traceback(bytes(found.before), "")[1].row == 22


def test_a_log_that_powershell_wrote_is_read() -> None:
    text = "\r\n".join(traceback_lines(1))
    for encoding in ("utf-16", "utf-16-be"):
        raw = ("\ufeff" + text).encode(encoding) if encoding == "utf-16-be" else text.encode(encoding)
        (found,) = scan(io.BytesIO(raw))
        assert (found.message.device, found.row) == (1, 9)


def test_notebook_and_rich_tracebacks_are_followed() -> None:
    notebook = (
        "Traceback (most recent call last)\nFile ~/proj/train.py:12, in fit(self, loader)\n     10 a\n---> 12 loss = model(x)\n"
    )
    (frame,) = read_traceback(notebook.encode(), "")
    assert (frame.path, frame.row, frame.function, frame.code) == ("~/proj/train.py", 12, "fit", "loss = model(x)")
    box = f"╭── {HEADER} ──╮\n│ /home/me/proj/train.py:41 in fit       │\n│ ❱ 41 │ loss = model(x)                 │\n"
    (frame,) = read_traceback(box.encode(), "")
    assert (frame.path, frame.row, frame.function) == ("/home/me/proj/train.py", 41, "fit")


def test_frames_of_another_machine_are_found_by_the_end_of_their_path(tmp_path: Path) -> None:
    for name in ("train.py", "pkg/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("\n" * 20 + "    loss = model(x)\n", encoding="utf-8")
    frames = read_traceback("\n".join(traceback_lines(1, "/scratch/u/pkg/train.py")).encode(), "")
    local = find_local(frames, tmp_path)
    assert {frame.path for frame in local} == {(tmp_path / "pkg/train.py").as_posix()}
    assert [frame.changed for frame in local] == [True, False]


@pytest.mark.parametrize("named", ["../../secret.py", "/etc/passwd", "\x00.py", "a" * 5000 + ".py", ""])
def test_nothing_outside_the_root_is_opened(tmp_path: Path, named: str) -> None:
    (tmp_path / "secret.py").write_text("x = 1\n", encoding="utf-8")
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    (root / "link.py").symlink_to(tmp_path / "secret.py")
    for name in (named, str(tmp_path / "secret.py"), "/x/link.py"):
        assert (
            find_local(read_traceback(f'Traceback (most recent call last)\n  File "{name}", line 1, in f\n'.encode(), ""), root)
            == ()
        )


@pytest.mark.parametrize(
    ("path", "library"),
    [
        ("/usr/lib/python3.11/site-packages/torch/nn/modules/module.py", True),
        ("<frozen runpy>", True),
        ("/opt/conda/lib/python3.10/contextlib.py", True),
        ("C:\\env\\Lib\\site-packages\\torch\\_tensor.py", True),
        ("/home/me/proj/train.py", False),
        ("/home/me/pytorch_models/train.py", False),
    ],
)
def test_library_frames_are_distinguished(path: str, library: bool) -> None:
    assert is_library(path) is library


def finding(path: Path, row: int, function: str, code: str = "TML101") -> Finding:
    span = Span(Position(row, 5), Position(row, 10))
    return Finding(
        code, "name", Severity.ERROR, Confidence.HIGH, f"{code} in {function or 'module'}", str(path), span, function=function
    )


def test_findings_on_the_failing_call_path_come_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    train, other = tmp_path / "train.py", tmp_path / "other.py"
    for path in (train, other):
        path.write_text("\n" * 30, encoding="utf-8")
    log = tmp_path / "log"
    log.write_text("\n".join(traceback_lines(0)), encoding="utf-8")
    found = [
        finding(other, 1, "f", "TML201"),
        finding(train, 2, "elsewhere", "TML201"),
        finding(train, 3, "Trainer.train_step", "TML201"),
        finding(train, 4, "Trainer.train_step", "TML999"),
        finding(train, 5, "Trainer.train_step", "TML101"),
    ]
    asked: list[list[str]] = []

    def check(paths: list[str]) -> list[Finding]:
        asked.append(list(paths))
        return found

    monkeypatch.setattr(cases, "findings_for", check)
    monkeypatch.setattr(command, "findings_for", check)
    assert command.main([str(log), "--src", str(tmp_path), "--output-format", "json"]) == 0
    assert asked == [[str(tmp_path)]]
    (message,) = json.loads(capsys.readouterr().out)["logs"][0]["messages"]
    assert [(item["row"], item["place"]) for item in message["findings"]] == [
        (5, "on the failing call path"),
        (3, "on the failing call path"),
        (2, "in its files"),
        (1, "elsewhere"),
    ]
    assert command.main([str(log), "--src", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.index("train.py:5:5 TML101") < out.index("train.py:3:5 TML201") < out.index("other.py:1:5 TML201")
    assert "here: " in out


def test_the_linter_is_not_asked_when_the_code_is_not_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("\n" * 30, encoding="utf-8")
    text = "\n".join(traceback_lines(0)[:-1]) + (
        "\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
        "which "
        "1.12 GiB is free. Process 40021 has 66.90 GiB memory in use. Including non-PyTorch memory, this process has 11.11 "
        "GiB memory in use. Of the allocated memory 10.40 GiB is allocated by PyTorch, and 190.02 MiB is reserved by PyTorch "
        "but unallocated."
    )
    (tmp_path / "log").write_text(text, encoding="utf-8")
    monkeypatch.setattr(command, "findings_for", lambda paths: pytest.fail("asked"))
    assert command.main([str(tmp_path / "log"), "--src", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "process 40021" in out
    assert "not in the program's code" in out


def test_the_linter_is_called_for_real(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # A file that cannot be parsed has a finding whatever rules there are.
    (tmp_path / "train.py").write_text(
        "import torch\ntorch.cuda.empty_cache()\ndef train_step(:\n    loss.backward()\n", encoding="utf-8"
    )
    assert [item.code for item in cases.findings_for([str(tmp_path)])] == ["TML000"]


@pytest.mark.parametrize("output_format", ["text", "json", "markdown"])
def test_exit_status_and_format(tmp_path: Path, output_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    good, empty = tmp_path / "good.log", tmp_path / "empty.log"
    good.write_text("\n".join(traceback_lines(0)), encoding="utf-8")
    empty.write_text("all went well\n", encoding="utf-8")
    options = ["--src", str(tmp_path), "--output-format", output_format]
    assert command.main([str(good), *options]) == 0
    assert "genuine" in capsys.readouterr().out
    assert command.main([str(empty), *options]) == 1
    assert command.main([str(empty), str(good), *options]) == 0
    assert command.main([str(good), str(tmp_path / "missing"), *options]) == 2
    captured = capsys.readouterr()
    assert "genuine" in captured.out
    assert "missing" in captured.err
    assert command.main([str(tmp_path), *options]) == 2
    assert command.main([str(good), "--src", str(tmp_path / "nowhere")]) == 2
    with pytest.raises(SystemExit) as stopped:
        command.main(["--no-such-option"])
    assert stopped.value.code == 2


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(traceback_lines(0)).encode())))
    monkeypatch.chdir(tmp_path)
    assert command.main(["-"]) == 0
    assert "<stdin>:9: CUDA on device 0: genuine" in capsys.readouterr().out


def test_every_kind_is_explained_in_full_and_the_rest_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cap = OOM.format(q=300, gpu=7).replace("Of the allocated", "23.00 GiB allowed; Of the allocated")
    text = "\n".join([*(f"[rank{rank}]: {OOM.format(q=200 + rank, gpu=rank)}" for rank in range(3)), f"[rank7]: {cap}"])
    (tmp_path / "log").write_text(text, encoding="utf-8")
    command.main([str(tmp_path / "log"), "--src", str(tmp_path)])
    out = capsys.readouterr().out
    assert out.count("What to do, in this order") == 2
    assert "line 2: CUDA on device 1 [rank1]: genuine" in out
    assert "line 3: CUDA on device 2 [rank2]: genuine" in out


def test_what_a_log_holds_cannot_reach_the_terminal_or_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = (
        'Traceback (most recent call last):\n  File "/x/<script>`evil`.py", line 1, in \x1b]0;title\x07f\n    \x1b[2J*bold*\n'
        + OOM.format(q=1, gpu=0)
    )
    (tmp_path / "log").write_text(hostile, encoding="utf-8")
    for output_format in ("text", "markdown"):
        command.main([str(tmp_path / "log"), "--src", str(tmp_path), "--output-format", output_format])
        out = capsys.readouterr().out
        assert "\x1b" not in out
    fenced = False
    for row in out.splitlines():
        fenced ^= row.lstrip().startswith("```")
        assert fenced or "<script>" not in row


def test_the_worked_example_in_the_docs_is_what_the_program_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Path(__file__).parent.parent
    monkeypatch.chdir(root)
    assert command.main(["examples/oom/out_of_memory.log"]) == 0
    page = (root / "docs" / "oom.md").read_text(encoding="utf-8")
    shown = page.partition("$ torchmemlint oom examples/oom/out_of_memory.log\n")[2].partition("\n```")[0]

    def lines(text: str) -> list[str]:
        # The words of a finding are its rule's; here only the place and the code count.
        kept = (line for line in text.splitlines() if line.strip() and not line.startswith("        "))
        return [line.partition(" `")[0] if " TML" in line else line for line in kept]

    assert lines(shown) == lines(capsys.readouterr().out)
    assert any("examples/oom/evaluate.py:24" in line and " TML" in line for line in lines(shown))


THC = "/pytorch/torch/lib/THC/generic/THCStorage.cu"


def test_a_log_that_begins_with_the_check_in_c_keeps_its_frames() -> None:
    """The check writes its line before Python knows of the failure; the traceback is that of the exception below it."""
    log = f"""THCudaCheck FAIL file={THC} line=58 error=2 : out of memory
Traceback (most recent call last):
  File "main.py", line 445, in <module>
    train(data)
  File "main.py", line 357, in train
    loss.backward()
RuntimeError: cuda runtime error (2) : out of memory at {THC}:58
"""
    (case,) = cases.read_log("log", io.BytesIO(log.encode())).cases
    assert (case.row, case.times) == (1, 2)
    assert [(frame.row, frame.function) for frame in case.frames] == [(445, "<module>"), (357, "train")]


def test_the_check_in_c_does_not_take_the_frames_of_what_failed_before() -> None:
    log = f"""Traceback (most recent call last):
  File "data.py", line 3, in read
    open(name)
FileNotFoundError: [Errno 2] No such file or directory: 'a'
THCudaCheck FAIL file={THC} line=58 error=2 : out of memory
Segmentation fault (core dumped)
"""
    (case,) = cases.read_log("log", io.BytesIO(log.encode())).cases
    assert case.frames == ()
