"""Nets whose pattern is a recurrence."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from graphs.necks import tokens, words
from graphs.registry import Net, graph


class Reader(nn.Module):
    """A recurrent layer between an ordinary layer that writes and two that read."""

    def __init__(self, layer: nn.RNNBase, out_features: int) -> None:
        super().__init__()
        self.before = nn.Linear(6, layer.input_size)
        self.layer = layer
        self.hidden = nn.Linear(out_features, 16)
        self.out = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.layer(F.relu(self.before(x)))
        return self.out(F.relu(self.hidden(x)))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_lstm() -> Net:
    return Reader(nn.LSTM(12, 10, batch_first=True), 10), tokens()


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_gru() -> Net:
    return Reader(nn.GRU(12, 10, batch_first=True), 10), tokens()


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_rnn() -> Net:
    return Reader(nn.RNN(12, 10, batch_first=True, nonlinearity="relu"), 10), tokens()


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_bidirectional() -> Net:
    return Reader(nn.LSTM(12, 8, batch_first=True, bidirectional=True), 16), tokens()


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_stacked() -> Net:
    return Reader(nn.LSTM(12, 8, num_layers=2, bias=False), 8), tokens()


class LastState(nn.Module):
    """The last hidden state is read, not the sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 12)
        self.rnn = nn.GRU(12, 10, num_layers=2, batch_first=True)
        self.hidden = nn.Linear(10, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        _, state = self.rnn(self.embed(x))
        return self.out(F.relu(self.hidden(state[-1])))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_last_state() -> Net:
    return LastState(), words()


class CellLoop(nn.Module):
    """A cell in a loop over time, with a stored size for the first state."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.cell = nn.LSTMCell(6, hidden_size)
        self.hidden = nn.Linear(hidden_size, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], self.hidden_size)
        memory = x.new_zeros(x.shape[0], self.hidden_size)
        for step in range(x.shape[1]):
            state, memory = self.cell(x[:, step], (state, memory))
        return self.out(F.relu(self.hidden(state)))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_cell_loop() -> Net:
    return CellLoop(10), tokens(4)


class LearnedState(nn.Module):
    """The first state is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.GRU(6, 10, batch_first=True)
        self.first = nn.Parameter(torch.zeros(1, 1, 10))
        self.hidden = nn.Linear(10, 16)
        self.out = nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        x, _ = self.rnn(x, self.first.expand(-1, x.shape[0], -1).contiguous())
        return self.out(F.relu(self.hidden(x)))


@graph(expect_cut=True, reason="the hidden layer behind it at least")
def recurrent_learned_state() -> Net:
    return LearnedState(), tokens()


class ConvGruStep(nn.Module):
    """A convolutional gated unit written out, two steps."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.gates = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.candidate = nn.Conv2d(2 * width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.stem(x))
        state = torch.zeros_like(x)
        for _ in range(2):
            update, reset = torch.sigmoid(self.gates(torch.cat([x, state], dim=1))).chunk(2, dim=1)
            candidate = torch.tanh(self.candidate(torch.cat([x, reset * state], dim=1)))
            state = (1 - update) * state + update * candidate
        return self.out(state)


@graph(expect_cut=True, reason="the stem's channels: they are only read by the two convolutions")
def recurrent_conv_gru() -> Net:
    return ConvGruStep(8), torch.randn(2, 3, 8, 8)


class DiagonalRecurrence(nn.Module):
    """Each channel decays at its own learned pace (state space models)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_proj = nn.Linear(6, width)
        self.log_decay = nn.Parameter(torch.zeros(width))
        self.out_proj = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.in_proj(x)
        decay = torch.exp(-F.softplus(self.log_decay))
        state = torch.zeros_like(x[:, 0])
        states = []
        for step in range(x.shape[1]):
            state = decay * state + x[:, step]
            states.append(state)
        return self.out_proj(torch.stack(states, dim=1))


@graph(expect_cut=True, reason="every channel: a silent input leaves its state at zero")
def recurrent_diagonal() -> Net:
    return DiagonalRecurrence(12), tokens(5)
