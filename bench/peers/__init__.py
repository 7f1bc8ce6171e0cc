"""One file a peer: how its Bayesian network, its loss and its optimiser are made, for the races, the zoo and more."""

from bench.peers.peer import Bayesian, Build, Peer, Task, load, peers

__all__ = ["Bayesian", "Build", "Peer", "Task", "load", "peers"]
