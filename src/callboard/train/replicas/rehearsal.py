"""What the actors of all trainers do in a standby, so that a takeover waits for no import and no first call."""

from callboard.device.protocol.residents.actor import HostContext
from callboard.train.job import Job
from callboard.train.kinds import optimizer_of
from callboard.train.replicas.buckets import Buckets
from callboard.train.states import pack, unpack

__all__ = ["rehearse"]


def rehearse(job: Job, ctx: HostContext) -> None:
    """Train one layer on the device for a step, and hand its state over, as after a loss.

    Loads what torch loads when it is first used. The model itself is built by ``prepare``.
    """
    import torch

    device = ctx.torch_device
    layer = torch.nn.Linear(8, 8).to(device)
    parameters = list(layer.parameters())
    buckets, rule = Buckets(parameters), optimizer_of(job.optimizer, parameters)
    buckets.zero()
    layer(torch.ones(8, 8, device=device)).square().mean().backward()
    buckets.norm()
    rule.step()
    own = layer.state_dict(), rule.state_dict(), [0.0]
    weights, state, _ = unpack(pack(own, 1, 1, lambda tensor: tensor, device))
    layer.load_state_dict(weights)
    rule.load_state_dict(state)
