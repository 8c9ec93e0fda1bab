//! Kernel ABI: restartable sequences, membarrier, CPU topology.
