"""How a request's samples lie in the journal: MessagePack, and zstd with a dictionary made of the run's own texts.

Samples of one run resemble each other (prompts set a style, problems share words), and a dictionary brings that to rows
of a kilobyte, which by themselves hardly compress. It is made once, in a thread, of the first megabytes of a run; what
came before stays as it is until `Journal.compact`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import msgspec
import zstandard

from treeforge.errors import StorageError
from treeforge.sample import Sample

LEVEL = 3
DICTIONARY_BYTES = 64 * 1024
MATERIAL_BYTES = 8_000_000
"""Payload bytes after which a dictionary is made."""
MOST_MATERIAL = 2_000
"""Payloads that a dictionary is made of, at most: more take longer and hardly help."""
LONGEST_PAYLOAD = 1 << 30
_SHORTEST = 256  # smaller payloads do not repay the time
_LEAST_MATERIAL = 100  # payloads without which no dictionary can be made
_ZSTD = b"\x28\xb5\x2f\xfd"  # no MessagePack array starts so


class Payloads:
    """Encodes and decodes payloads. Not for several threads."""

    def __init__(self, find: Callable[[int], bytes | None]) -> None:
        """`find` gives the journal's dictionary with an id."""
        self._find = find
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(tuple[Sample, ...]).decode
        self._decompressors: dict[int, zstandard.ZstdDecompressor] = {}
        self._compressor: zstandard.ZstdCompressor | None = None
        self._material: list[bytes | bytearray | memoryview] = []
        self._bytes = 0
        self._training: Future[bytes | None] | None = None

    def use(self, data: bytes) -> int:
        """Write with this dictionary from now on; its id."""
        dictionary = zstandard.ZstdCompressionDict(data)
        number = dictionary.dict_id()
        self._decompressors[number] = zstandard.ZstdDecompressor(dict_data=dictionary)
        self._compressor = zstandard.ZstdCompressor(level=LEVEL, dict_data=dictionary, write_checksum=True)
        self._material, self._bytes = [], 0
        return number

    def encode(self, samples: tuple[Sample, ...]) -> bytes:
        """The payload of a request's samples."""
        payload = self._encode(samples)
        if self._compressor is not None:
            return self.compress(payload)
        if self._training is None:
            self._bytes += len(payload)
            if len(self._material) < MOST_MATERIAL:
                self._material.append(payload)
            if self._bytes >= MATERIAL_BYTES and len(self._material) >= _LEAST_MATERIAL:
                pool = ThreadPoolExecutor(1, thread_name_prefix="treeforge-dictionary")
                self._training = pool.submit(train, self._material)
                pool.shutdown(wait=False)
        return payload

    def compress(self, payload: bytes) -> bytes:
        """A plain payload with the dictionary in use, where there is one and it is worth the time."""
        if self._compressor is None or len(payload) < _SHORTEST:
            return payload
        return self._compressor.compress(payload)

    def decode(self, payload: bytes) -> tuple[Sample, ...]:
        """The samples again. Raises `StorageError` for bytes that are no payload of this journal."""
        try:
            return self._decode(self.plain(payload))
        except (msgspec.DecodeError, TypeError) as error:  # a row that somebody else wrote may hold no bytes
            raise StorageError(f"a row cannot be read: {error}") from error

    def plain(self, payload: bytes) -> bytes:
        """A payload without its compression. Raises `StorageError`."""
        if payload[:4] != _ZSTD:
            return payload
        try:
            number = zstandard.get_frame_parameters(payload).dict_id
            if number not in self._decompressors:
                data = self._find(number)
                if data is None:
                    raise StorageError(f"a row needs the dictionary {number}, which the journal does not hold")
                dictionary = zstandard.ZstdCompressionDict(data)
                self._decompressors[number] = zstandard.ZstdDecompressor(dict_data=dictionary)
            return self._decompressors[number].decompress(payload, max_output_size=LONGEST_PAYLOAD)
        except zstandard.ZstdError as error:
            raise StorageError(f"a row cannot be read: {error}") from error

    def trained(self) -> bytes | None:
        """A dictionary that has become ready since: to be stored, and then used. None where there is none."""
        if self._training is None or not self._training.done():
            return None
        data, self._training = self._training.result(), None
        self._material, self._bytes = [], 0
        return data


def train(material: list[bytes | bytearray | memoryview]) -> bytes | None:
    """A dictionary of such payloads, None where they are too few or too unlike."""
    try:
        return zstandard.train_dictionary(DICTIONARY_BYTES, material, k=256, d=8, level=LEVEL).as_bytes()
    except zstandard.ZstdError:
        return None
