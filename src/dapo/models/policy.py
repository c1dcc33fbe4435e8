"""The model as the trainer sees it: packed tokens in, log-probabilities out, in one forward pass."""

from __future__ import annotations

from torch import Tensor, nn

from dapo.models.language_model import LanguageModel
from dapo.models.packed_attention import PackedAttention
from dapo.models.token_logprobs import token_logprobs


class PackedPolicy(nn.Module):
    """One module whose forward reads every parameter, the head's included, so that whoever shards them can wrap it."""

    def __init__(self, model: LanguageModel) -> None:
        super().__init__()
        self.module = model.module
        self._model = model

    def forward(
        self, token_T: Tensor, packing: PackedAttention, predictor_R: Tensor, target_R: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor]:
        """Log-probability of each target after its predictor, and the entropy there in nats; (R,) float32 each.

        token_T: (T,) int64, packed. predictor_R: (R,) int64, places among them. target_R: (R,) int64, token ids.
        """
        hidden = self._model.hidden(token_T, packing.position_T, packing)
        return token_logprobs(hidden[predictor_R], self._model.head, target_R, temperature)
