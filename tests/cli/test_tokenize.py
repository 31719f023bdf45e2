"""woolly tokenize: what a text becomes, and what was lost on the way."""

from __future__ import annotations

import ast
import json
from pathlib import Path

from tests.cli.conftest import Woolly


def test_every_token_is_a_line_with_id_and_piece(woolly: Woolly, model: Path) -> None:
    done = woolly("tokenize", str(model), "the end")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(maxsplit=1) for line in done.stdout.splitlines()]
    assert all(row[0].isdigit() for row in rows)
    assert "".join(ast.literal_eval(row[1]) for row in rows) == "the end"


def test_json_is_one_line_for_programs(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "the end", "--json")
    report = json.loads(done.stdout)
    assert "".join(report["pieces"]) == "the end"
    assert len(report["ids"]) == len(report["pieces"])
    assert report["dropped_bytes"] == 0


def test_control_tokens_are_text_unless_asked_for(woolly: Woolly) -> None:
    text = "a<|im_end|>"
    plain = json.loads(woolly("tokenize", "tiny-talker", text, "--json").stdout)
    special = json.loads(woolly("tokenize", "tiny-talker", text, "--json", "--special").stdout)
    assert "<|im_end|>" not in plain["pieces"]
    assert special["pieces"] == ["a", "<|im_end|>"]
    assert special["dropped_bytes"] == 0


def test_standard_input_is_the_text_of_a_dash(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "-", "--json", stdin="wörld\n")
    assert "".join(json.loads(done.stdout)["pieces"]).replace("\\xc3\\xb6", "ö") == "wörld\n"


def test_t05_input_that_is_not_utf_8_is_refused_with_its_place_or_replaced(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "-", stdin=b"abc\xffdef")
    assert done.returncode == 2
    assert "byte 3" in done.stderr
    done = woolly("tokenize", "tiny-talker", "-", "--json", "--lossy", stdin=b"abc\xffdef")
    assert done.returncode == 0


def test_t13_pieces_cannot_act_on_the_terminal(woolly: Woolly) -> None:
    done = woolly("tokenize", "tiny-talker", "\x1b[31m")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_t21_bytes_without_a_token_are_reported(woolly: Woolly, smollm2: Path) -> None:
    done = woolly("tokenize", str(smollm2), "a\x04b", "--json")
    report = json.loads(done.stdout)
    assert ("".join(report["pieces"]), report["dropped_bytes"]) == ("ab", 1)
    assert "1 bytes of the text have no token" in done.stderr
