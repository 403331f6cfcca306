"""The measures notice what they are for; tensors on ``meta`` show mistakes of device."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from ablations.tables.scales import SMALL
from ablations.tables.table3 import TABLE
from experiments.benchmark import training
from experiments.benchmark.kernels import kind_of
from experiments.benchmark.plain import PlainTransformer, plain_step
from experiments.benchmark.workload import SIZES, Workload, config_of, workload
from experiments.gpu_check import equality, resuming
from experiments.gpu_check.equality import loss_and_gradients
from experiments.gpu_check.findings import Findings
from experiments.gpu_check.resuming import open_on_cpu, train
from experiments.gpu_check.small import config_of_row
from experiments.gpu_check.variants import attend_packed, attention_variants, pack
from tests.samples import random_sentences, random_targets
from transformer.config import DecodingConfig, ModelConfig, override
from transformer.data.batches import Batch
from transformer.decoding import beams
from transformer.decoding.search import beam_search
from transformer.model.attention import scaled_dot_product_attention
from transformer.model.encoder_decoder import Transformer, padding_mask
from transformer.training.module import TransformerModule

CPU = torch.device("cpu")
LOAD = Workload(text="multi30k", vocab_size=61, tokens_per_batch=256)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equality, "LOAD", LOAD)
    monkeypatch.setattr(resuming, "LOAD", LOAD)
    tiny = ModelConfig(num_layers=1, d_model=16, d_ff=16, num_heads=2, d_k=8, d_v=8)
    monkeypatch.setitem(SIZES, "tiny", tiny)


@pytest.mark.parametrize("row", TABLE.rows, ids=lambda row: row.name)
def test_rows_of_small_are_those_of_the_scale(row: Any) -> None:
    expected, found = SMALL.apply(TABLE.configure(row)), config_of_row(row.name)
    assert found.model == expected.model
    assert found.training.label_smoothing == expected.training.label_smoothing
    assert found.data.tokens_per_batch == expected.data.tokens_per_batch


def test_a_device_that_computes_otherwise_is_noticed(
    small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = Findings()
    loss_and_gradients(CPU, findings, "tiny")
    assert findings.problems == {}
    encode, calls = Transformer.encode, iter(range(1_000))

    def sometimes_masked(model: Transformer, src: Any, mask: Any) -> Any:
        shifted = mask.roll(1, -1) if next(calls) % 3 else mask  # 1 in 3 is the CPU's
        return encode(model, src, shifted)

    monkeypatch.setattr(Transformer, "encode", sometimes_masked)
    loss_and_gradients(CPU, findings, "tiny")
    assert len(findings.problems) >= 8


def test_a_training_resumed_with_other_batches_is_noticed(small: None, tmp_path: Path) -> None:
    batches, path = LOAD.batches(4, CPU), tmp_path / "half.ckpt"
    whole = train("tiny", CPU, batches, save=path)
    assert torch.equal(whole, train("tiny", CPU, batches, start=path))
    other = train("tiny", CPU, [*batches[:2], *batches[:2]], start=path)
    changed = whole - resuming._initial_weights("tiny")
    assert (other - whole).norm() / changed.norm() > 2 * resuming._LIMIT


def test_a_checkpoint_of_a_gpu_opens_without_one(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    path = tmp_path / "half.ckpt"
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        train("tiny", CPU, LOAD.batches(4, CPU), save=path)
    with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available"):
        torch.load(path, weights_only=True)
    assert open_on_cpu(path, "tiny")["gpus"] == 0


def test_a_step_keeps_to_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our model's and the plain one's: what is made on the CPU does not mix with ``meta``."""
    monkeypatch.setattr("experiments.benchmark.plain.autocast", lambda *_: nullcontext())
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda *_: False)
    config = override(config_of("tiny", LOAD), num_layers=1, precision="fp32")
    batch = Batch(
        src=random_sentences([5, 3]), tgt=random_targets([4, 7]), source_tokens=8, target_tokens=9
    )
    batch = dataclasses.replace(
        batch, **{name: getattr(batch, name).to("meta") for name in ("src", "tgt", "real_targets")}
    )
    module = TransformerModule(config)
    module.model.to("meta")
    smoothed, _ = module.loss(batch)
    gradients = torch.autograd.grad(smoothed, list(module.parameters()))
    assert {gradient.device.type for gradient in gradients} == {"meta"}
    plain = PlainTransformer(config.model).to("meta").train()
    plain_step(plain, torch.optim.SGD(plain.parameters()), batch, 0.1, "fp32")
    assert {p.grad.device.type for p in plain.parameters() if p.grad is not None} == {"meta"}


def test_the_trainers_own_time_is_measured_on_the_models_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved: list[str] = []
    to = Batch.to

    def watched(batch: Batch, device: Any, **more: Any) -> Batch:
        moved.append(str(device))
        return to(batch, device, **more)

    monkeypatch.setattr(Batch, "to", watched)
    monkeypatch.setattr(training, "_OVERHEAD_STEPS", 3)
    training._trainer_overhead(config_of("tiny", LOAD), CPU)
    assert moved[0] == "cpu"


def test_batches_for_a_gpu_are_full() -> None:
    load = workload(torch.device("cuda"))
    batches = load.batches(40, CPU)
    real = sum(batch.source_tokens + batch.target_tokens for batch in batches)
    filled = real / sum(batch.src.numel() + batch.tgt[:, 1:].numel() for batch in batches)
    assert filled > 0.88


def test_a_backend_that_does_not_work_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> torch.Tensor:
        raise RuntimeError("many words\nNo available kernel.")

    monkeypatch.setattr("experiments.gpu_check.variants.workload", lambda _: LOAD)
    monkeypatch.setattr("experiments.gpu_check.variants.scaled_dot_product_attention", refuse)
    findings = Findings()
    attention_variants(CPU, findings, "tiny", (5,))
    assert {*findings.rows.values()} == {("does not work", "No available kernel.")}


def test_packed_attention_is_that_of_the_padded_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, *_: object) -> Tensor:
        sizes = starts.diff().tolist()
        sentences = zip(*(x.transpose(0, 1).split(sizes, dim=1) for x in (q, k, v)), strict=True)
        return torch.cat([F.scaled_dot_product_attention(*x) for x in sentences], 1).transpose(0, 1)

    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", attend)
    ids = torch.tensor([[1, 1, 1], [1, 1, 0]])
    query, key, value = torch.randn(3, 2, 4, 3, 5).unbind()
    expected = scaled_dot_product_attention(query, key, value, padding_mask(ids))
    packed, starts = pack((query, key, value), ids.ne(0))
    found = attend_packed(packed, starts, 3)
    torch.testing.assert_close(found, expected.transpose(1, 2)[ids.ne(0)])


@pytest.mark.parametrize("beam_size", [1, 2])
def test_every_tensor_of_a_search_names_its_device(
    beam_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not lands on ``meta`` here, and on the CPU of a machine with a GPU."""
    # A single number may stay on the CPU.
    monkeypatch.setattr(beams, "length_penalty", lambda n, alpha: ((5.0 + n) / 6.0) ** alpha)
    model = Transformer(config_of("tiny", LOAD).model).eval()
    src = random_sentences([5, 3])
    config = DecodingConfig(beam_size=beam_size, max_extra_length=3)
    with torch.inference_mode():
        expected = beam_search(model, src, config)
        with torch.device("meta"):
            assert beam_search(model, src, config) == expected


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "products"),
        ("nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "products"),
        ("void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16>", "products"),
        ("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", "attention"),
        ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>>", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob", "attention"),
        ("void at::native::(anonymous)::vectorized_layer_norm_kernel<float>", "normalisation"),
        ("void at::native::(anonymous)::GammaBetaBackwardCUDAKernelTemplate", "normalisation"),
        ("void at::native::multi_tensor_apply_kernel<FusedAdamMathFunctor<float>>", "optimizer"),
        ("triton_red_fused__to_copy_native_layer_norm_3", "compiled"),
        ("void at::native::fused_dropout_kernel_vec<float, float>", "dropout"),
        ("Memcpy DtoD (Device -> Device)", "copies"),
        ("void at::native::unrolled_elementwise_kernel<direct_copy_kernel_cuda>", "copies"),
        ("void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>", "elementwise"),
        ("void at::native::vectorized_elementwise_kernel<4, FillFunctor<float>>", "copies"),
        ("aten::mm", "products"),
        ("aten::logical_not", "other"),
    ],
)
def test_kernels_are_sorted_by_name(kernel: str, kind: str) -> None:
    assert kind_of(kernel) == kind
