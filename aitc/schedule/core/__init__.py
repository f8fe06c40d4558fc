"""What all rooms of scheduling read: which nodes are anchors, where values lie, the symbols a node needs, and the log of why launches stay apart."""
