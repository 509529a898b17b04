"""Latencies as HDR histograms in which samples that never came are right-censored, not left out.

Microseconds from 1 to 3.6e9 (an hour), 3 significant digits: values are kept to within 0.1 %. While it is
filled, a histogram is a sparse table over HDR's own bucket index (a full HDR array takes 188 KB, and there is
one per stage, kind and window); encoded, it is the HDR V2 format that every HDR library reads.
"""

from __future__ import annotations

import binascii
import dataclasses
import math
import zlib
from collections.abc import Iterable

from hdrh.codec import HdrCookieException, HdrHistogramSettingsException, HdrLengthException
from hdrh.histogram import HdrHistogram

from harness.errors import HarnessError

from .model import Stage, StageSamples

LIMIT_SECONDS = 3600.0
_LIMIT = 3_600_000_000
_DIGITS = 3
_HALF_BITS = 10
_HALF = (
    1 << _HALF_BITS
)  # 3 digits take 2048 sub-buckets, of which all but the first bucket use the upper half


@dataclasses.dataclass(frozen=True, slots=True)
class Quantile:
    """A value in seconds; `at_least`: the true one is that or more, since samples below it are censored."""

    seconds: float
    at_least: bool = False

    def __str__(self) -> str:
        return f"{'>= ' if self.at_least else ''}{self.seconds:.4g} s"


class LatencyHistogram:
    """Counts of latencies, those that came and those that were still awaited when the looking ended."""

    def __init__(self) -> None:
        self._all: dict[int, int] = {}
        self._censored: dict[int, int] = {}
        self.count = 0
        """All samples, the censored ones among them."""
        self.censored = 0
        """How many of them never came."""

    def record(self, seconds: float) -> None:
        """A latency that was seen. At least 1 us; of more than an hour only `>= 1 h` is kept."""
        if seconds > LIMIT_SECONDS:
            self.censor(seconds)
            return
        index = _index(seconds)
        self._all[index] = self._all.get(index, 0) + 1
        self.count += 1

    def censor(self, seconds: float) -> None:
        """A sample that had not come after so many seconds of waiting."""
        index = _index(seconds)
        self._all[index] = self._all.get(index, 0) + 1
        self._censored[index] = self._censored.get(index, 0) + 1
        self.count += 1
        self.censored += 1

    def merge(self, other: LatencyHistogram) -> None:
        """Add the other's samples to these."""
        for mine, others in ((self._all, other._all), (self._censored, other._censored)):
            for index, number in others.items():
                mine[index] = mine.get(index, 0) + number
        self.count += other.count
        self.censored += other.censored

    def quantile(self, q: float) -> Quantile | None:
        """The smallest value that a share `q` (0 to 1) of all samples doesn't exceed; None without samples.

        Every censored sample is worth at least what it had waited, so the same rank among the recorded values
        is never above the true quantile, and is the true one if enough samples below it are not censored.
        """
        if not 0 <= q <= 1:
            raise ValueError(f"quantile {q}: expected a share from 0 to 1")
        if not self.count:
            return None
        rank = max(1, math.ceil(q * self.count - 1e-9))
        below = came = 0
        for index in sorted(self._all):
            below += self._all[index]
            came += self._all[index] - self._censored.get(index, 0)
            if below >= rank:
                at_least = came < rank
                micros = _lowest(index) if at_least else _lowest(index + 1) - 1
                return Quantile(micros / 1e6, at_least)
        raise HarnessError(f"histogram: {self.count} samples counted, {below} kept")

    def maximum(self) -> Quantile | None:
        """The largest sample, or the longest wait where that came to nothing."""
        return self.quantile(1.0)

    def mean(self) -> Quantile | None:
        """The mean, to within 0.1 %; of the waits, and so `>=`, where samples are censored."""
        if not self.count:
            return None
        total = sum((_lowest(index) + _lowest(index + 1) - 1) / 2 * n for index, n in self._all.items())
        return Quantile(total / self.count / 1e6, self.censored > 0)

    def share_within(self, seconds: float) -> float:
        """The share of all samples that are known to have come within so many seconds; 0 without any."""
        limit = _index(seconds)
        came = sum(n - self._censored.get(index, 0) for index, n in self._all.items() if index <= limit)
        return came / self.count if self.count else 0.0

    def encode(self) -> str:
        """All samples in HDR's compressed V2 format, base64."""
        return _encode(self._all)

    def samples(self, stage: Stage, kind: str, window: str) -> StageSamples:
        """For a report."""
        return StageSamples(
            stage=stage,
            kind=kind,
            window=window,
            histogram=self.encode(),
            count=self.count,
            censored=self.censored,
            censored_histogram=_encode(self._censored) if self.censored else "",
        )

    @classmethod
    def decode(cls, histogram: str, censored: str = "") -> LatencyHistogram:
        """From what `encode` gave.

        Raises:
            HarnessError: if that is no HDR histogram of this kind.
        """
        result = cls()
        result._all = _decode(histogram)
        result._censored = _decode(censored) if censored else {}
        result.count = sum(result._all.values())
        result.censored = sum(result._censored.values())
        if any(result._all.get(index, 0) < number for index, number in result._censored.items()):
            raise HarnessError("histogram: it lacks some of its own censored samples")
        return result

    @classmethod
    def of(cls, samples: StageSamples | Iterable[StageSamples]) -> LatencyHistogram:
        """From a report: one stage's samples, or several (kinds, windows, workers) as one.

        Raises:
            HarnessError: if one can't be decoded, or does not hold as many samples as it says.
        """
        result = cls()
        for part in [samples] if isinstance(samples, StageSamples) else samples:
            decoded = cls.decode(part.histogram, part.censored_histogram)
            if (decoded.count, decoded.censored) != (part.count, part.censored):
                raise HarnessError(
                    f"histogram of {part.stage}, {part.kind}, {part.window}: says {part.count} samples and "
                    f"{part.censored} censored, holds {decoded.count} and {decoded.censored}"
                )
            result.merge(decoded)
        return result


def _index(seconds: float) -> int:
    """HDR's index of the counter for that value."""
    micros = min(max(round(seconds * 1e6), 1), _LIMIT)
    bucket = micros.bit_length() - _HALF_BITS - 1
    return micros if bucket <= 0 else (bucket << _HALF_BITS) + (micros >> bucket)


def _lowest(index: int) -> int:
    """The lowest value, in microseconds, that `_index` gives that counter."""
    bucket = (index >> _HALF_BITS) - 1
    return index if bucket <= 0 else ((index & (_HALF - 1)) + _HALF) << bucket


def _encode(counts: dict[int, int]) -> str:
    hdr = HdrHistogram(1, _LIMIT, _DIGITS)
    for index, number in counts.items():
        hdr.record_value(_lowest(index), number)
    return str(hdr.encode().decode("ascii"))


def _decode(encoded: str) -> dict[int, int]:
    try:
        hdr = HdrHistogram.decode(encoded)
    except (
        HdrCookieException,
        HdrHistogramSettingsException,
        HdrLengthException,
        binascii.Error,
        zlib.error,
        ValueError,
        IndexError,
    ) as error:
        raise HarnessError(f"no HDR histogram: {encoded[:40]!r}: {error}") from error
    settings = (hdr.lowest_trackable_value, hdr.highest_trackable_value, hdr.significant_figures)
    if settings != (1, _LIMIT, _DIGITS):
        raise HarnessError(f"HDR histogram with settings {settings}: expected {(1, _LIMIT, _DIGITS)}")
    return {index: number for index, number in enumerate(hdr.counts[:]) if number}
