"""Result folders: write and read runs, convert files, check submissions to the MIB benchmark."""

from .convert import Conversion, convert, convert_to_submission
from .result_folder import is_result, read_result, read_start, result_summary, write_run_data
from .submission import SubmissionCheck, check_submission
