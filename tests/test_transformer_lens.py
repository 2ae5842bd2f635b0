"""Models of TransformerLens: a small imitation of its classes. test_transformer_lens_package.py has the real ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from conftest import VOCABULARY, build

from edgewise import Eap, InputError, score_edges
from edgewise.models import make_batch, wrap_model
from edgewise.models.prepare import prepare
from edgewise.tasks import Example, Task

TOKENS = torch.randint(VOCABULARY, (1, 20), generator=torch.Generator().manual_seed(3))
CORRUPTED = torch.cat([TOKENS[:, :7], (TOKENS[:, 7:8] + 1) % VOCABULARY, TOKENS[:, 8:]], 1)
EXAMPLE = Example(tuple(TOKENS[0].tolist()), tuple(CORRUPTED[0].tolist()), 1, 2)


def read_logits(model):
    """Return the logits [token] that edgewise computes for the last of TOKENS."""
    batch = prepare(model.transformer, make_batch([EXAMPLE], torch.device("cpu")))
    few, many = (batch.read_out(batch.run(batch.clean), all_logits) for all_logits in (False, True))
    torch.testing.assert_close(few.answer_logits, many.answer_logits)
    return many.logits[0]


def check_equal(model, lens_model):
    """Compare the logits of both: up to 1e-5 of the largest."""
    with torch.no_grad():
        expected = lens_model(TOKENS)[0, -1]
    assert (read_logits(model) - expected).abs().max() <= 1e-5 * expected.abs().max()


class HookedTransformer(torch.nn.Module):
    """GPT-2's weights under TransformerLens's names, with the norms folded into the weights that follow, or not."""

    def __init__(self, loaded, is_folded):
        super().__init__()
        self.loaded, body, width = loaded, loaded.transformer, loaded.config.n_embd
        n_heads, self.tokenizer, self.is_folded = loaded.config.n_head, None, is_folded
        self.cfg = SimpleNamespace(
            n_layers=3, d_model=width, n_ctx=32, d_head=width // n_heads, n_heads=n_heads, d_vocab=VOCABULARY,
            d_vocab_out=VOCABULARY, d_mlp=4 * width, act_fn="gelu_new", eps=1e-5, gated_mlp=False,
            normalization_type="LNPre" if is_folded else "LN", positional_embedding_type="standard",
        )  # fmt: skip
        self.W_E, self.W_pos = body.wte.weight, body.wpe.weight
        self.blocks, stacked = [], {name: [] for name in ("Q", "K", "V")}
        inner = []
        for block in body.h:
            weight, bias = self.fold(block.ln_1, block.attn.c_attn.weight, block.attn.c_attn.bias)
            for name, w, b in zip(stacked, weight.split(width, 1), bias.split(width), strict=True):
                heads = [w[:, h * width // n_heads : (h + 1) * width // n_heads] for h in range(n_heads)]
                stacked[name].append((torch.stack(heads), b.view(n_heads, -1)))
            inner.append(self.fold(block.ln_2, block.mlp.c_fc.weight, block.mlp.c_fc.bias))
            self.blocks.append(SimpleNamespace(ln1=self.norm(block.ln_1), ln2=self.norm(block.ln_2)))
        for name, pairs in (*stacked.items(), ("in", inner)):
            for letter, parts in zip("Wb", zip(*pairs, strict=True), strict=True):
                setattr(self, f"{letter}_{name}", torch.stack(parts))
        self.W_O = torch.stack([block.attn.c_proj.weight.view(n_heads, -1, width) for block in body.h])
        self.b_O = torch.stack([block.attn.c_proj.bias for block in body.h])
        self.W_out = torch.stack([block.mlp.c_proj.weight for block in body.h])
        self.b_out = torch.stack([block.mlp.c_proj.bias for block in body.h])
        self.ln_final = self.norm(body.ln_f)
        self.W_U, self.b_U = self.fold(body.ln_f, loaded.lm_head.weight.T, torch.zeros(VOCABULARY))

    def fold(self, norm, weight, bias):
        """What follows a norm, with the norm's weight and bias in it, and without the mean, which norms remove."""
        if not self.is_folded:
            return weight, bias
        folded = norm.weight[:, None] * weight
        return folded - folded.mean(0), bias + norm.bias @ weight

    def norm(self, norm):
        return SimpleNamespace() if self.is_folded else SimpleNamespace(w=norm.weight, b=norm.bias)

    def forward(self, tokens):
        return self.loaded(tokens).logits


HookedTransformer.__module__ = "transformer_lens.HookedTransformer"


@pytest.fixture(params=[False, True], ids=["plain", "folded"])
def imitation(request):
    with torch.no_grad():
        return HookedTransformer(build("gpt2", torch.float32), request.param).eval()


def test_a_hooked_transformer_has_its_own_logits_and_the_scores_of_the_same_gpt2(imitation):
    state = torch.random.get_rng_state()
    model = wrap_model(imitation)
    assert torch.equal(torch.random.get_rng_state(), state)
    check_equal(model, imitation)
    task = Task("one", "all", (EXAMPLE,))
    scores, expected = (score_edges(m, task, Eap()).values for m in (model, wrap_model(imitation.loaded)))
    assert abs(scores - expected).max() <= 1e-3 * abs(expected).max()


def test_weights_that_do_not_give_the_logits_raise_an_input_error(imitation):
    imitation.W_Q = imitation.W_Q * 2
    with pytest.raises(InputError, match=r"this HookedTransformer .*from_pretrained_no_processing") as error:
        wrap_model(imitation)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "option, message",
    [({"use_qk_norm": True}, "use_qk_norm = True, which isn't supported"),
     ({"normalization_type": None}, "norms None, positions 'standard'.* GPT-2, Llama and GPT-NeoX"),
     ({"act_fn": "solu_ln"}, "activation 'solu_ln'"), ({"d_head": 4}, "3 heads of 4")],
)  # fmt: skip
def test_other_structures_raise_an_input_error(imitation, option, message):
    vars(imitation.cfg).update(option)
    with pytest.raises(InputError, match=message):
        wrap_model(imitation)
