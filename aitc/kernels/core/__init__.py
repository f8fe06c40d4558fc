"""What every kernel is made of: the Kernel itself, the Group that it runs, and functors, the C++ text of what is fused into it.

Nothing here knows what a kernel computes. The other rooms import from here; this one imports from no other.
"""
