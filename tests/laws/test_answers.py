"""Answers of several tokens, and sets of answers: the same as the sums that define them, for every model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import VOCABULARY, first_in_every_family, random_task

from edgewise import CMD, Circuit, Eap, EapIg, Greedy, InputError, Recipe, Settings, discover
from edgewise.evaluate import ABLATIONS, CPR, Mean, PositionalMean
from edgewise.evaluate.run_circuits import evaluate_circuits
from edgewise.learn.training import GradientJob
from edgewise.models import make_batch
from edgewise.models.prepare import prepare
from edgewise.runtime import IN_PROCESS
from edgewise.score import MaskIg
from edgewise.score.exact import ExactEdges
from edgewise.score.run_scorer import score_edges
from edgewise.tasks import (
    Accuracy,
    Example,
    Kl,
    LogitDifference,
    LogProbability,
    LogProbabilityDifference,
    ProbabilityDifference,
    Task,
    TaskMetric,
)

EXACT = {"rtol": 1e-8, "atol": 1e-9}
LENGTHS, OTHER_LENGTHS = (1, 3, 2, 1, 2), (2, 2, 1, 1, 4)


def several_tokens() -> Task:
    """Random prompts with answers of one to three tokens and no incorrect ones."""
    source, examples = np.random.default_rng(5), []
    for example, n_tokens in zip(random_task(len(LENGTHS)).examples, LENGTHS, strict=True):
        answer = tuple(source.integers(1, VOCABULARY, n_tokens).tolist())
        prompts = (tokens + answer[:-1] for tokens in (example.clean, example.corrupted))
        examples.append(Example(*prompts, answer[0], continuation=answer[1:]))
    return Task("several", "test", tuple(examples))


def both_answers() -> tuple[Task, Task, Task]:
    """Prompts with two answers of one to four tokens; the same with the correct answer alone, and with the other."""
    source = np.random.default_rng(6)
    tasks: tuple[list[Example], ...] = ([], [], [])
    for number, example in enumerate(random_task(len(LENGTHS)).examples):
        right, wrong = (
            tuple(source.integers(1, VOCABULARY, lengths[number]).tolist()) for lengths in (LENGTHS, OTHER_LENGTHS)
        )
        wrong = (right[0], *wrong[1:]) if number == 1 else wrong  # answers may begin with the same token
        for examples, answers in zip(tasks, ((right, wrong), (right,), (wrong,)), strict=True):
            forced = sum((answer[:-1] for answer in answers), ())
            prompts = (tokens + forced for tokens in (example.clean, example.corrupted))
            more = {"incorrect": wrong[0], "other_continuation": wrong[1:]} if len(answers) > 1 else {}
            examples.append(Example(*prompts, answers[0][0], continuation=answers[0][1:], **more))
    both, correct, incorrect = (Task("several", "test", tuple(examples)) for examples in tasks)
    return both, correct, incorrect


def token_by_token(task: Task) -> tuple[Task, np.ndarray]:
    """One example per token of every answer, and the example that each belongs to."""
    examples, owner = [], []
    for number, example in enumerate(task.examples):
        for place, token in enumerate((example.correct, *example.continuation)):
            stop = example.length - example.n_reads + 1 + place
            examples.append(Example(example.clean[:stop], example.corrupted[:stop], token))
            owner.append(number)
    return Task("single", "test", tuple(examples)), np.array(owner)


def sum_rows(values: np.ndarray, owner: np.ndarray) -> np.ndarray:
    return np.stack([values[owner == number].sum(0) for number in range(owner.max() + 1)])


@first_in_every_family("metric", [LogProbability(), Kl()])
def test_scores_are_the_sums_over_the_tokens_of_the_answer(model, metric):
    task = several_tokens()
    singles, owner = token_by_token(task)
    for scorer in (EapIg(2), MaskIg(2), ExactEdges((0, 3, 11, 25))):
        several, single = (score_edges(model, each, scorer, metric).values for each in (task, singles))
        assert np.abs(several).max() > 0
        np.testing.assert_allclose(several, sum_rows(single, owner), rtol=1e-4, atol=1e-5)  # scores are float32


@first_in_every_family("ablation", ["patching", "zero"])
def test_circuits_are_the_sums_over_the_tokens_of_the_answer(model, ablation):
    """Not under means, which are over other positions."""
    task = several_tokens()
    singles, owner = token_by_token(task)
    source = np.random.default_rng(1)
    circuits = [Circuit(model.graph, source.random(model.graph.n_edges) < share) for share in (0.2, 0.5, 0.9)]
    circuits += [Circuit.full(model.graph), Circuit.empty(model.graph)]
    results = [
        evaluate_circuits(model, each, circuits, LogProbability(), ABLATIONS[ablation](), of_model=[Accuracy()])
        for each in (task, singles)
    ]
    np.testing.assert_allclose(results[0].values.T, sum_rows(results[1].values.T, owner), **EXACT)
    np.testing.assert_allclose(results[0].full, sum_rows(results[1].full, owner), **EXACT)
    right = [results[1].of_model["accuracy"][owner == number].min() for number in range(len(task))]
    assert results[0].of_model["accuracy"].tolist() == right


def test_weights_have_the_gradient_of_the_sum(model):
    task = several_tokens()
    singles, _ = token_by_token(task)
    weights = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for each in (task, singles):
        ends = dict.fromkeys(each.examples, (1.0, 0.0))
        gradients.append(
            GradientJob(CPR, LogProbability(), ABLATIONS["patching"](), weights, ends, 1.0)(model, each.examples)
        )
    np.testing.assert_allclose(gradients[0][1], gradients[1][1], rtol=1e-5, atol=1e-6)


@first_in_every_family("scorer", [EapIg(2), MaskIg(2), ExactEdges((0, 3, 11, 25))])
def test_scores_of_a_difference_are_those_of_the_correct_minus_those_of_the_incorrect_answer(model, scorer):
    both, *single = both_answers()
    difference = score_edges(model, both, scorer).values
    right, wrong = (score_edges(model, task, scorer, LogProbability()).values for task in single)
    assert np.abs(wrong).max() > 0
    np.testing.assert_allclose(difference, right - wrong, rtol=1e-4, atol=1e-5)  # scores are float32


@first_in_every_family("ablation", ["patching", "zero"])
def test_circuits_of_a_difference_are_those_of_the_correct_minus_those_of_the_incorrect_answer(model, ablation):
    both, *single = both_answers()
    source = np.random.default_rng(1)
    circuits = [Circuit(model.graph, source.random(model.graph.n_edges) < share) for share in (0.2, 0.5, 0.9)]
    circuits += [Circuit.full(model.graph), Circuit.empty(model.graph)]
    replaced, of_model = ABLATIONS[ablation](), [Accuracy(), LogProbability(), LogitDifference()]
    result = evaluate_circuits(model, both, circuits, ablation=replaced, of_model=of_model)
    right, wrong = (
        evaluate_circuits(model, task, circuits, LogProbability(), replaced, of_model=[Accuracy()]) for task in single
    )
    np.testing.assert_allclose(result.values, right.values - wrong.values, **EXACT)
    np.testing.assert_allclose(result.full, right.full - wrong.full, **EXACT)
    # Metrics of the correct answer don't see the other one, and the logit difference is that of the first tokens.
    np.testing.assert_allclose(result.of_model["log-probability"], right.full, **EXACT)
    assert result.of_model["accuracy"].tolist() == right.of_model["accuracy"].tolist()
    firsts = tuple(
        Example(e.clean[: e.length + 1 - e.n_reads], e.corrupted[: e.length + 1 - e.n_reads], e.correct, e.incorrect)
        for e in both.examples
        if e.correct != e.incorrect
    )
    expected = evaluate_circuits(model, Task("first", "test", firsts), [], LogitDifference()).full
    differences = result.of_model["logit-difference"][[e.correct != e.incorrect for e in both.examples]]
    np.testing.assert_allclose(differences, expected, **EXACT)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_means_are_over_the_tokens_at_a_position_of_either_answer(loaded, model):
    """Both answers begin at the position after the prompt, though one of them comes first in a batch."""
    both, embedding = both_answers()[0], loaded.get_input_embeddings().weight
    tokens: dict[int, list[int]] = {}
    for example in both.examples:
        n_prompt = example.length + 1 - example.n_reads
        n_other = len(example.other_continuation)
        ends = (example.clean[n_prompt : example.length - n_other], example.clean[example.length - n_other :])
        for first, part in ((0, example.clean[:n_prompt]), *((n_prompt, end) for end in ends)):
            for place, token in enumerate(part, first):
                tokens.setdefault(place, []).append(token)
    batches = [[0, 1], [2, 3, 4]]
    means = PositionalMean().prepare(model, both, batches, IN_PROCESS).means[0]
    for place, at_place in tokens.items():
        torch.testing.assert_close(means[place], embedding[at_place].mean(0), **EXACT)
    every = [token for at_place in tokens.values() for token in at_place]
    torch.testing.assert_close(
        Mean().prepare(model, both, batches, IN_PROCESS).means[0][0], embedding[every].mean(0), **EXACT
    )


def test_weights_have_the_gradient_of_the_difference(model):
    weights = torch.rand(model.graph.n_edges, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    gradients = []
    for task, metric in zip(both_answers(), (LogProbabilityDifference(), *[LogProbability()] * 2), strict=True):
        ends = dict.fromkeys(task.examples, (1.0, 0.0))
        job = GradientJob(CPR, metric, ABLATIONS["patching"](), weights, ends, 1.0)
        gradients.append(job(model, task.examples)[1])
    np.testing.assert_allclose(gradients[0], gradients[1] - gradients[2], rtol=1e-5, atol=1e-5)


def test_log_probabilities_and_their_difference_are_those_of_the_model_itself(model, loaded):
    """Each answer in a run of its own, of HuggingFace's model. Padding and a shared prefix change nothing."""
    both, correct, incorrect = both_answers()
    with torch.no_grad():
        right, wrong = (
            np.array([total_log_probability(loaded, example) for example in task.examples])
            for task in (correct, incorrect)
        )
        metrics = ((both, LogProbabilityDifference(), right - wrong), (correct, LogProbability(), right))
        for task, metric, expected in metrics:
            batch = prepare(model.transformer, make_batch(task.examples, torch.device("cpu")))
            readout = batch.read_out(batch.run(batch.clean), True)
            np.testing.assert_allclose(metric.checked(readout, readout), expected, atol=1e-5)


def total_log_probability(loaded, example: Example) -> float:
    """The sum over the tokens of the correct answer, which ends the prompt."""
    answer = (example.correct, *example.continuation)
    logs = loaded(torch.tensor([example.clean])).logits[0].log_softmax(-1)
    return sum(row[token].item() for row, token in zip(logs[-len(answer) :], answer, strict=True))


def with_sets(task: Task) -> Task:
    """Every example with sets of different sizes."""
    source, examples = np.random.default_rng(2), []
    for number, example in enumerate(task.examples):
        tokens = [t for t in source.permutation(VOCABULARY).tolist() if t not in (example.correct, example.incorrect)]
        right, wrong = tuple(tokens[: number % 4]), tuple(tokens[5 : 6 + number % 3])
        # As generators list it, the answer itself is among them.
        examples.append(replace(example, also_correct=(example.correct, *right), also_incorrect=wrong))
    return replace(task, examples=tuple(examples))


def test_probability_difference_sums_over_sets(model, loaded, task):
    task = with_sets(task)
    found = evaluate_circuits(model, task, [], ProbabilityDifference()).full
    for example, value in zip(task.examples, found, strict=True):
        with torch.no_grad():
            chances = loaded(torch.tensor([example.clean])).logits[0, -1].softmax(-1)
        right, wrong = {example.correct, *example.also_correct}, {example.incorrect, *example.also_incorrect}
        assert value == pytest.approx((chances[list(right)].sum() - chances[list(wrong)].sum()).item(), abs=1e-5)
    pairs = replace(task, examples=tuple(replace(e, also_correct=(), also_incorrect=()) for e in task.examples))
    difference = (evaluate_circuits(model, each, [], LogitDifference()).full for each in (task, pairs))
    np.testing.assert_array_equal(*difference)


@pytest.mark.parametrize("family", ["gpt2"])
def test_an_answer_that_is_listed_twice_counts_once(model):
    sets = [((7, 8), (9,)), ((7, 7, 8, 5), (9, 6, 9))]
    examples = [Example((1, 2), (1, 3), 5, 6, also_correct=right, also_incorrect=wrong) for right, wrong in sets]
    once, twice = evaluate_circuits(model, Task("sets", "test", tuple(examples)), [], ProbabilityDifference()).full
    assert once == pytest.approx(twice, rel=1e-12)


def test_the_gradient_of_sets_is_the_slope(model, task):
    """EAP of one edge of the embedding equals a finite difference of its weight at the clean run."""
    task = with_sets(task)
    scores = score_edges(model, task, Eap()).values
    assert score_edges(model, task, Eap()).provenance["metric"] == "probability-difference"
    edge, step = int(np.abs(scores).mean(0).argmax()), 1e-5
    metrics = []
    for weight in (1 - step, 1 + step):
        weights = torch.ones(model.graph.n_edges, dtype=torch.float64)
        weights[edge] = weight
        with torch.no_grad():
            batch = prepare(model.transformer, make_batch(task.examples, torch.device("cpu")))
            readout = batch.read_stream(batch.run_weighted(weights, batch.run(batch.corrupted)), True)
            metrics.append(ProbabilityDifference().checked(readout, readout).numpy())
    np.testing.assert_allclose((metrics[1] - metrics[0]) / (2 * step), scores[:, edge], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("family", ["gpt2"])
def test_each_task_has_its_metric(model, task):
    pairs = tuple(replace(e, incorrect=None) for e in task.examples)
    some = (*task.examples[1:], pairs[0])
    assert TaskMetric().for_task(task) == LogitDifference()
    assert TaskMetric().for_task(with_sets(task)) == ProbabilityDifference()
    assert TaskMetric().for_task(both_answers()[0]) == LogProbabilityDifference()
    same = (evaluate_circuits(model, task, [], m).full for m in (LogitDifference(), LogProbabilityDifference()))
    np.testing.assert_allclose(*same, atol=1e-5)
    for alone in (
        several_tokens(),
        replace(task, examples=pairs),
        replace(task, examples=some),
    ):
        assert TaskMetric().for_task(alone) == LogProbability()
        for metric in (LogitDifference(), ProbabilityDifference()):
            with pytest.raises(InputError, match="have no incorrect one; use log-probability or kl"):
                metric.for_task(alone)
        assert Kl().for_task(alone) == Kl()
    both = both_answers()[0]
    for metric in (LogitDifference(), ProbabilityDifference()):
        with pytest.raises(InputError, match=r"in 1 of the .* these are the same; use log-probability-difference"):
            metric.for_task(both)
    with pytest.raises(InputError, match="sets of answers, and answers of several tokens: no metric suits both"):
        TaskMetric().for_task(with_sets(task).join(both))


@pytest.mark.parametrize("family", ["gpt2"])
def test_the_metric_of_a_run_suits_all_its_splits(model, task):
    both = both_answers()[0]
    for train, test in ((task, both), (both, task)):
        run = discover(model, train, test, Settings(sizes=(0.5, 1.0)), [(CMD, Recipe(Greedy()))], attention=0)
        assert run.settings.metric == LogProbabilityDifference()
        expected = evaluate_circuits(model, test, [], LogProbabilityDifference()).full
        np.testing.assert_allclose(run.outcomes[0].curve.full, expected, atol=1e-6)


@pytest.mark.parametrize(
    "fields, words",
    [({"also_incorrect": (3,)}, "share the token 3"), ({"also_correct": (4,)}, "share the token 4"),
     ({"also_correct": (0,), "also_incorrect": (5, 0)}, "share the token 0"),
     ({"incorrect": None, "continuation": (7,)}, "must end with the tokens of an answer"),
     ({"other_continuation": (7,)}, "must end with the tokens of an answer"),
     ({"incorrect": None, "other_continuation": (7,)}, "but not its first"),
     ({"incorrect": 3, "continuation": (7,), "other_continuation": (7,)}, "are the same token")],
)  # fmt: skip
def test_answers_that_contradict_each_other_are_refused(fields, words):
    with pytest.raises(InputError, match=words):
        Example(**({"clean": (1, 2), "corrupted": (1, 3), "correct": 3, "incorrect": 4} | fields))
