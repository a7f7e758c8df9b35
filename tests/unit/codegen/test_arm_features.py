"""Features of Arm processors from what systems say: cpuinfo of several boards, bits, sysctl."""

from __future__ import annotations

import pytest

from qglow.codegen import arm_features, host
from qglow.codegen.arm_features import from_bits, from_cpuinfo, from_sysctl
from qglow.codegen.host import lacking
from qglow.targets.arm.targets import AARCH64, AARCH64_DOTPROD, AARCH64_I8MM

PI_4 = "fp asimd evtstrm crc32 cpuid"
PI_5 = "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp"
GRAVITON_3 = (
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma lrcpc dcpop "
    "sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg dcpodp svei8mm svebf16 "
    "i8mm bf16 dgh rng"
)
X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu vme sse sse2 avx2\n"


def cpuinfo(*cores: str) -> str:
    """The text of Linux for cores with these features."""
    rows = (
        f"processor\t: {number}\nBogoMIPS\t: 108.00\nFeatures\t: {features}\nCPU implementer\t: 0x41\n"
        for number, features in enumerate(cores)
    )
    return "\n".join(rows)


@pytest.mark.parametrize(
    ("cores", "found"),
    [
        ([PI_4] * 4, set()),
        ([PI_5] * 4, {"dotprod"}),
        ([GRAVITON_3] * 2, {"dotprod", "i8mm"}),
        ([GRAVITON_3, PI_5], {"dotprod"}),
        ([PI_5, PI_4], set()),
    ],
)
def test_cpuinfo_lists_what_all_cores_have(cores: list[str], found: set[str]) -> None:
    assert from_cpuinfo(cpuinfo(*cores)) == found


@pytest.mark.parametrize("text", ["", X86])
def test_cpuinfo_without_features_tells_nothing(text: str) -> None:
    assert from_cpuinfo(text) is None


def test_bits_of_the_auxiliary_vector() -> None:
    entries = {16: 1 << 20 | 1 << 1, 26: 1 << 13}
    assert from_bits(lambda entry: entries.get(entry, 0)) == {"dotprod", "i8mm"}
    assert from_bits(lambda entry: {16: 1 << 1, 26: 0}[entry]) == set()


def test_numbers_of_macos() -> None:
    m1 = {"hw.optional.arm.FEAT_DotProd": 1, "hw.optional.arm.FEAT_I8MM": 0}
    assert from_sysctl(lambda name: m1.get(name, 0)) == {"dotprod"}


@pytest.mark.parametrize(("features", "name"), [(PI_4, "aarch64"), (PI_5, "aarch64-dotprod")])
def test_the_fastest_target_that_the_processor_has_is_found(
    features: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What LLVM leaves out is found, and only targets whose features are there."""
    monkeypatch.setattr(host, "host_processor", lambda: "aarch64")
    monkeypatch.setattr(host.binding, "get_host_cpu_features", lambda: {"neon": True})
    monkeypatch.setattr(host, "arm_features", lambda: from_cpuinfo(cpuinfo(features)))
    host.host_features.cache_clear()
    try:
        fitting = [m.name for m in (AARCH64, AARCH64_DOTPROD, AARCH64_I8MM) if lacking(m) is None]
    finally:
        host.host_features.cache_clear()
    assert fitting[-1] == name


def test_macos_names_the_same_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host.binding, "get_process_triple", lambda: "arm64-apple-darwin24.1.0")
    host.host_processor.cache_clear()
    try:
        assert host.host_processor() == "aarch64"
    finally:
        host.host_processor.cache_clear()


def test_this_system_answers() -> None:
    assert arm_features.arm_features() <= {"dotprod", "i8mm"}
