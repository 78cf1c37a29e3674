"""Traces of a module class at several sizes -> the formula of its cost, exact or refused."""
