"""Policies from other papers, to compare with."""
