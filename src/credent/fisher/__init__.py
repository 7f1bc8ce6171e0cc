"""The Fisher information of a network: its trace, and the condition number of what gradients show of it."""

from credent.fisher.condition import Condition
from credent.fisher.monitor import TraceMonitor
from credent.fisher.trace import Trace, minibatch_trace, trace

__all__ = ["Condition", "Trace", "TraceMonitor", "minibatch_trace", "trace"]
