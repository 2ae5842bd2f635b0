"""The names of this package, imported when they are first used."""

from .circuit_tests import (
    TESTS as TESTS,
    CircuitTest as CircuitTest,
    Verification as Verification,
    VerifySettings as VerifySettings,
    hsic as hsic,
)
from .knock_outs import KnockOuts as KnockOuts, knock_out as knock_out
from .random_circuits import (
    add_path as add_path,
    draw_circuit as draw_circuit,
    draw_matched as draw_matched,
    plan_verification as plan_verification,
)
from .verify_circuit import verify_circuit as verify_circuit
