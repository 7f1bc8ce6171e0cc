"""Samplers: optimisers with the noise that makes their path a sample of the posterior."""

from credent.samplers.bnp import BNPSGLD
from credent.samplers.langevin import Identity, Langevin, Preconditioner
from credent.samplers.psgld import PSGLD, RMSprop
from credent.samplers.schedules import cyclical, polynomial
from credent.samplers.sgld import SGLD

__all__ = ["BNPSGLD", "PSGLD", "SGLD", "Identity", "Langevin", "Preconditioner", "RMSprop", "cyclical", "polynomial"]
