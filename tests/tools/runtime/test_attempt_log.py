"""The bounded log of one attempt: lines from pieces, the beginning and the end of much, nothing lost of little."""

from __future__ import annotations

from holdfast.tools.runtime.attempt_log import LINE_BYTES, LINE_CHARS_MAX, Logbook, LogLine, decode_lines, encode_lines


def test_pieces_become_lines_by_stream() -> None:
    book = Logbook(0)
    assert book.write(1, "stdout", "half ") == []
    assert book.write(2, "stderr", "other\n") == [LogLine(2, "stderr", "other")]
    assert book.write(3, "stdout", "a line\nand") == [LogLine(3, "stdout", "half a line")]
    assert book.close(4) == [
        LogLine(2, "stderr", "other"),
        LogLine(3, "stdout", "half a line"),
        LogLine(4, "stdout", "and"),
    ]


def test_a_message_is_whole_without_an_end() -> None:
    assert Logbook(0).write(1, "say", "hello", ends=True) == [LogLine(1, "say", "hello")]


def test_of_what_was_written_over_the_last_stays() -> None:
    assert Logbook(0).write(1, "stdout", "10%\r50%\r100%\r\n") == [LogLine(1, "stdout", "100%")]


def test_a_long_line_is_kept_in_pieces_even_before_it_ends() -> None:
    lines = Logbook(0).write(1, "stdout", "x" * (2 * LINE_CHARS_MAX + 5))
    assert [len(line.text) for line in lines] == [LINE_CHARS_MAX, LINE_CHARS_MAX, 5]


def test_of_much_the_beginning_and_the_end_are_kept_and_one_line_tells_of_the_rest() -> None:
    book = Logbook(0, bytes_max=20 * (LINE_BYTES + 3))
    for number in range(100):
        book.write(number, "stdout", f"{number:03}\n")
    lines = book.close(100)
    assert [line.text for line in lines[:10]] == [f"{number:03}" for number in range(10)]
    assert [line.text for line in lines[-10:]] == [f"{number:03}" for number in range(90, 100)]
    assert lines[10] == LogLine(90, "dropped", f"80 lines ({80 * 4} bytes) were left out here")
    assert len(lines) == 21


def test_what_was_taken_early_is_not_told_again_and_the_next_time_comes_later() -> None:
    book = Logbook(1_000_000)
    book.write(1_000_000, "stdout", "first\n")
    assert book.keep_at == 6_000_000
    assert book.take_first(7_000_000) == [LogLine(1_000_000, "stdout", "first")]
    assert book.keep_at == 19_000_000
    book.write(8_000_000, "stdout", "second\n")
    assert book.close(9_000_000) == [LogLine(8_000_000, "stdout", "second")]


def test_lines_come_back_from_their_blob() -> None:
    lines = [LogLine(1, "stdout", "ä\t"), LogLine(2, "warning", "")]
    assert decode_lines(encode_lines(lines)) == lines
