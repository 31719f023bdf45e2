"""What a file that is not GGUF seems to be, by its first bytes, and what to do about it."""

from __future__ import annotations

_STARTS = (
    (b"lmgg", "an old GGML file, from before GGUF"),
    (b"fmgg", "an old GGMF file, from before GGUF"),
    (b"tjgg", "an old GGJT file, from before GGUF"),
    (b"algg", "an old GGLA adapter, from before GGUF"),
    (b"FUGG", "the magic is reversed"),
    (b"PK\x03\x04", "a zip archive, perhaps a PyTorch checkpoint; get a GGUF file of the model"),
    (b"\x80", "a Python pickle, which is never opened; get a GGUF file of the model"),
    (b"version https://git-lfs", "a Git LFS pointer; the file itself was not fetched"),
    (b"\x1f\x8b", "a gzip archive; unpack it first"),
    (b"{", "JSON text; the download failed"),
    (b"\0\0\0\0", "it begins with zeros; the download is incomplete"),
)


def seems_to_be(start: bytes) -> str:
    """A few words for the first 64 bytes of a file."""
    text = start.lstrip().lower()
    if text.startswith((b"<!doctype", b"<html", b"<?xml")):
        return "an HTML page; the download failed"
    if start[8:9] == b"{" and 0 < int.from_bytes(start[:8], "little") < 1 << 32:
        return "a safetensors file; get a GGUF file of the model, or make one with llama.cpp's convert_hf_to_gguf.py"
    for prefix, words in _STARTS:
        if start.startswith(prefix):
            return words
    return "the magic is missing"
