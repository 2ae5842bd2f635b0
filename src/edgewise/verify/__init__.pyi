"""The names of this package, imported when they are first used."""

from .knock_outs import KnockOuts as KnockOuts, knock_out as knock_out, knock_out_each as knock_out_each
