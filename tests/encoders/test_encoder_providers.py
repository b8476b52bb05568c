"""Providers and precisions: what is here, what is fallen back from, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from dinosaur_ad import _cpu
from dinosaur_ad.encoders import Encoder, Tokens, compare_tokens, list_specs, load_encoder, opening, providers
from dinosaur_ad.encoders.auto import sample_images
from dinosaur_ad.encoders.backends.onnx_backend import OnnxEncoder, serialised_graph
from dinosaur_ad.encoders.graph.forms import in_form, quantise_columns
from dinosaur_ad.encoders.parity import failure
from dinosaur_ad.encoders.weights.local import add, ensure
from dinosaur_ad.errors import EncoderError
from dinosaur_ad.export.exporting import _in_precision

TINY = ("tiny-dinov2", "tiny-dinov3")


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """What is known of this machine is asked anew, before and after a test that pretends."""
    known = providers.openvino_capabilities
    known.cache_clear()
    yield
    known.cache_clear()


def tiny(name: str = "tiny-dinov2", **options: Any) -> Encoder:
    return load_encoder(name, layers=(0, "final"), size=5 * list_specs()[name].patch, **options)


def encoded(encoder: Encoder) -> Tokens:
    return encoder.encode_prepared(sample_images(encoder.size))


def test_info_says_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    info = tiny(threads=1).info()
    assert {key: info[key] for key in ("backend", "provider", "precision", "threads", "fallback")} == {
        "backend": "onnx",
        "provider": "onnx-cpu",
        "precision": "float32",
        "threads": 1,
        "fallback": None,
    }
    assert tiny().info()["threads"] is None


def test_a_scheduler_that_shares_out_cores_is_listened_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert tiny().threads == 1
    assert tiny(threads=2).threads == 2


@pytest.mark.parametrize("name", TINY)
def test_int8_is_near_float32_and_does_not_depend_on_the_batch(name: str) -> None:
    encoder = tiny(name, precision="int8", provider="onnx-cpu")
    assert (encoder.precision, encoder.fallback) == ("int8", None)
    together = encoded(encoder)
    parity = compare_tokens(encoded(tiny(name)), together)
    assert failure(parity, "int8") is None
    assert parity.cosine_min < 1.0  # it is not float32 under another name
    for index, image in enumerate(sample_images(encoder.size)):
        alone = encoder.encode_prepared(image[None])
        np.testing.assert_array_equal(alone.patches[0], together.patches[index])


def test_the_fingerprint_is_that_of_float32() -> None:
    assert tiny(precision="int8", provider="onnx-cpu").fingerprint == tiny().fingerprint


@pytest.mark.parametrize("name", TINY)
def test_the_float16_graph_is_valid_and_near(name: str) -> None:
    """Its providers are not here, but ONNX Runtime's CPU can run the graph, with casts around what it lacks."""
    encoder = tiny(name)
    model = in_form(onnx.load_from_string(serialised_graph(encoder, ensure(name))), "float16")
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    cls, patches = session.run(["cls", "patches"], {"images": sample_images(encoder.size)})
    assert cls.dtype == np.float32
    assert failure(compare_tokens(encoded(encoder), Tokens(cls, patches)), "float16") is None
    # Of the matrices, one alone is not half: that of the patch projection, whose folded weights are too small for it.
    matrices = {tensor.name: tensor.data_type for tensor in model.graph.initializer if len(tensor.dims) == 2}
    products = [node.input[1] for node in model.graph.node if node.op_type == "MatMul" and node.input[1] in matrices]
    kinds = [matrices[weight] for weight in products]
    assert kinds == [onnx.TensorProto.FLOAT, *[onnx.TensorProto.FLOAT16] * (len(kinds) - 1)]
    assert len(kinds) > 1


@pytest.mark.parametrize("name", TINY)
def test_the_run_time_and_an_export_halve_alike(name: str) -> None:
    """A float16 export promises what was measured; the run time's float16 on a GPU is the same graph."""
    encoder = tiny(name)
    graph = serialised_graph(encoder, ensure(name))
    run_time = onnx.load_from_string(serialised_graph(encoder, ensure(name), _form("cuda", "float16")))
    export = _in_precision(onnx.load_from_string(graph), "onnx", "float16", None)
    assert run_time == export
    assert run_time != onnx.load_from_string(graph)


def test_quantised_columns_are_within_half_a_step() -> None:
    weight = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
    weight[:, 3] = 0
    for largest in (127, 63):
        whole, scale = quantise_columns(weight, largest)
        assert np.abs(whole).max() == largest
        assert (np.abs(whole * scale - weight) <= scale / 2 + 1e-7).all()
        assert not whole[:, 3].any()


def test_a_cpu_that_would_overflow_gets_a_bit_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    forms = []
    for flags in ({"avx2"}, {"avx2", "avx_vnni"}):
        monkeypatch.setattr(providers, "cpu_flags", lambda flags=flags: frozenset(flags))
        encoder = tiny()
        forms.append(_largest(serialised_graph(encoder, ensure(encoder.name), _form("onnx-cpu", "int8"))))
    assert forms == [63, 127]


def _form(provider: str, precision: str) -> str:
    from dinosaur_ad.encoders.backends import onnx_backend

    return onnx_backend._form(provider, precision)


def _largest(graph: bytes) -> int:
    tensors = [onnx.numpy_helper.to_array(tensor) for tensor in onnx.load_from_string(graph).graph.initializer]
    return max(int(np.abs(tensor.astype(int)).max()) for tensor in tensors if tensor.dtype == np.int8)


def test_an_int8_graph_is_cached_beside_the_float_one(toy: Any, home: Path) -> None:
    add("toy", toy[1], progress=lambda _: None)
    first = load_encoder("toy", size=28, provider="onnx-cpu", precision="int8")
    names = sorted(path.name for path in (home / "graphs").iterdir())
    assert len(names) == 2
    assert names[0].endswith("-int8-dynamic.onnx")
    damaged = home / "graphs" / names[0]
    damaged.write_bytes(damaged.read_bytes()[:-5])
    again = load_encoder("toy", size=28, provider="onnx-cpu", precision="int8")
    np.testing.assert_array_equal(encoded(first).cls, encoded(again).cls)


@pytest.mark.parametrize("name", ["cuda", "tensorrt", "coreml", "xnnpack", "acl"])
def test_a_provider_that_is_not_here_is_fallen_back_from_aloud(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    encoder = tiny(provider=name)
    assert (encoder.provider, encoder.precision) == ("onnx-cpu", "float32")
    fallback = encoder.info()["fallback"]
    assert fallback == (
        f"{name} cannot run in float32 here (this ONNX Runtime was built without it; needs a build of ONNX Runtime "
        "that has it), so onnx-cpu float32 runs instead."
    )
    assert capsys.readouterr().err == f"fallback: {fallback}\n"
    np.testing.assert_array_equal(encoded(encoder).patches, encoded(tiny()).patches)


def test_strict_refuses_and_lists_what_is_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(
        EncoderError, match=r"cuda cannot run in float16 here: .*; available: onnx-cpu \(float32, int8\)"
    ):
        tiny(provider="cuda", precision="float16", strict=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"provider": "openvno"}, "no provider 'openvno'; choose one of: auto, onnx-cpu, openvino"),
        ({"precision": "fp8"}, "no precision 'fp8'; choose one of: float32, bfloat16"),
        ({"provider": "onnx-cpu", "backend": "torch"}, "'onnx-cpu' does not run on the backend torch"),
        ({"export": "folder", "provider": "openvino"}, "leave out the provider"),
        ({"export": "folder", "precision": "int8"}, "leave out the provider, the precision"),
    ],
)
def test_what_makes_no_sense_is_an_error_and_no_fallback(options: dict[str, Any], says: str) -> None:
    with pytest.raises(EncoderError, match=says) as caught:
        tiny(**options)
    assert "\n" not in str(caught.value)


def test_a_precision_the_provider_does_not_know_falls_back(capsys: pytest.CaptureFixture[str]) -> None:
    encoder = tiny(provider="onnx-cpu", precision="bfloat16")
    assert encoder.precision == "float32"
    assert "it knows float32 and int8 only" in capsys.readouterr().err


def test_without_a_cpu_for_it_bfloat16_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO would emulate it and say nothing."""
    monkeypatch.setattr(providers, "openvino_capabilities", lambda: frozenset({"BF16", "FP32"}))
    monkeypatch.setattr(providers, "cpu_flags", lambda: frozenset({"avx2", "avx512f"}))
    assert "bfloat16" not in providers.available()["openvino"]
    assert "no bfloat16 products" in str(tiny(provider="openvino", precision="bfloat16").fallback)


@pytest.mark.parametrize(
    ("machine", "flag"), [("AMD EPYC", "avx512_bf16"), ("Xeon", "amx_bf16"), ("Neoverse V1", "bf16")]
)
def test_the_cpu_is_read_from_linux(machine: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    word = "Features" if flag == "bf16" else "flags"
    monkeypatch.setattr(_cpu, "read_cpuinfo", lambda: f"model name\t: {machine}\n{word}\t\t: fpu {flag} x\n")
    monkeypatch.setattr(providers, "openvino_capabilities", lambda: frozenset({"BF16"}))
    assert _cpu.cpu_model() == machine
    assert flag in providers.cpu_flags()
    assert providers.why_not("openvino", "bfloat16") is None


class _Crashing(OnnxEncoder):
    def _run(self, pixels: Any) -> Any:
        raise RuntimeError("[E:onnxruntime] no kernel image for this device.\nsecond line")


class _Blind(OnnxEncoder):
    def _run(self, pixels: Any) -> Any:
        cls, patches = super()._run(pixels)
        return cls * np.nan, patches


@pytest.mark.parametrize(
    ("broken", "reason"),
    [(_Crashing, "its first run failed: [E:onnxruntime] no kernel image for this device"), (_Blind, "not finite")],
)
def test_a_first_run_that_fails_is_fallen_back_from(
    broken: type[OnnxEncoder], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dinosaur_ad.encoders.backends.onnx_backend.OnnxEncoder", broken)
    with pytest.raises(EncoderError) as caught:
        tiny(provider="onnx-cpu", precision="int8", strict=True)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    encoder = tiny(provider="onnx-cpu", precision="int8")
    assert reason in str(encoder.fallback)
    assert encoder.precision == "float32"


def test_a_provider_that_onnx_runtime_silently_leaves_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it does when CUDA's libraries are missing."""

    class Session(onnxruntime.InferenceSession):  # type: ignore[misc]
        def __init__(self, graph: bytes, options: Any, providers: list[Any]) -> None:
            super().__init__(graph, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)
    here = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: here)
    encoder = tiny(provider="cuda")
    assert encoder.provider == "onnx-cpu"
    assert "could not start it" in str(encoder.fallback)


def test_missing_weights_are_no_reason_to_fall_back(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EncoderError, match="dinosaur weights fetch dinov3-small"):
        load_encoder("dinov3-small", provider="openvino", precision="bfloat16")
    assert "fallback" not in capsys.readouterr().err


def test_the_older_spelling_of_a_precision_is_the_same_precision() -> None:
    assert tiny(precision="fp32").precision == "float32"


def test_torch_as_a_provider(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "_is_installed", lambda module: module != "transformers")
    encoder = tiny(provider="torch")
    assert encoder.backend == "onnx"
    assert "transformers missing" in str(encoder.fallback)


def test_torch_runs_where_it_is() -> None:
    pytest.importorskip("transformers")
    encoder = tiny(provider="torch")
    assert (encoder.backend, encoder.fallback) == ("torch", None)
    assert failure(compare_tokens(encoded(tiny()), encoded(encoder)), "float32") is None


def test_the_default_needs_no_first_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening.np, "full", lambda *_: pytest.fail("a first run costs an image's time"))
    tiny()
