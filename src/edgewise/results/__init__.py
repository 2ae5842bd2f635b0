"""What is left of a run: its record and its folder, conversions of it, submissions to the benchmark."""

from .convert import Conversion, convert, convert_to_submission
from .examples import Prompt, read_attention, read_examples
from .result_folder import (
    Result,
    ResultRow,
    fill_result,
    is_result,
    read_circuits,
    read_learned,
    read_result,
    read_statistics,
)
from .run_record import RunRecord
from .submission import SubmissionCheck, check_submission
