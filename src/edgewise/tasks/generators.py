"""The generators of prompt pairs, and what they share: seeded drawing of distinct items, and pairs with spans.

Tasks whose answers are words: ioi, multiple choice, induction, docstring, pronouns, agreement and capitals. Tasks whose
answers are numbers: addition, subtraction and greater-than. Each generator yields distinct pairs of a split, without
end. Splits share no prompt, clean or corrupted.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from ..errors import InputError
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import answer_tokens, next_token, single_tokens, unknown_token

SPLITS = ("train", "validation", "test")
TENTHS = {"train": range(0, 6), "validation": range(6, 8), "test": range(8, 10)}
MOST_MISSES = 5000


class Draw:
    """A random source that never accepts an item twice.

    The split of an item is a hash of the item, so it is the same for every seed and number of examples: six tenths are
    for training, two for validation, two for testing.
    """

    def __init__(self, task: str, seed: int) -> None:
        source = random.Random(f"{task}/{seed}")
        self.choice, self.sample, self.between = source.choice, source.sample, source.randint
        self._task = task
        self._accepted: set[tuple[object, ...]] = set()
        self._misses = 0

    def belongs(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is in `split`."""
        return hashlib.sha256(repr(item).encode()).digest()[0] % 10 in TENTHS[split]

    def accepts(self, pair: PromptPair, split: str) -> bool:
        """Whether both prompts of a pair are in `split`, and the clean one is new."""
        return self.belongs((pair.corrupted,), split) and self.is_new((pair.clean,), split)

    def is_new(self, item: tuple[object, ...], split: str) -> bool:
        """Whether `item` is in `split` and new. Raise InputError after many misses: there are no more new items."""
        if self.belongs(item, split) and item not in self._accepted:
            self._accepted.add(item)
            self._misses = 0
            return True
        self._misses += 1
        if self._misses > MOST_MISSES:
            raise InputError(
                f"task {self._task!r} has only about {len(self._accepted)} distinct prompts in split {split!r}; "
                "use fewer examples"
            )
        return False


def marked_pair(
    marked: str, corrupted: str, correct: str, incorrect: str, order: Sequence[str] = (), **more: Any
) -> PromptPair:
    """Return a pair from a clean prompt with markers. The span of its last token is `end`.

    order  the names of the other spans in their order, for prompts in which it varies
    more   further fields of the pair
    """
    clean, spans = read_markers(marked)
    if order:
        spans = tuple(sorted(spans, key=lambda span: order.index(span.name)))
    return PromptPair(clean, corrupted, correct, incorrect, spans=(*spans, end_span(clean)), **more)


NAMES = (
    "Mary John Tom James Anna David Sarah Paul Laura Mark Emma Peter Alice Simon Kate Jack Lisa Adam "
    "Rachel Kevin Susan Brian Jane Scott Amy Ryan Julia Eric Sam Steve Helen Frank Martin Rose Henry "
    "Grace Oliver Lucy Daniel Ruth"
).split()
IOI_PLACES = "store garden restaurant school hospital office house station park museum library market".split()
IOI_OBJECTS = "drink ring kiss book basketball bone computer necklace letter flower ticket lamp".split()
IOI_TEMPLATES = (
    "When {a} and {b} went to the {place}, {s} gave a {object} to",
    "Then, {a} and {b} went to the {place}. {s} gave a {object} to",
    "After {a} and {b} arrived at the {place}, {s} handed a {object} to",
    "While {a} and {b} were working at the {place}, {s} gave a {object} to",
    "Friends {a} and {b} found a {object} at the {place}. {s} gave it to",
    "Then, {a} and {b} had a long argument. Afterwards {s} brought a {object} to",
    "The {place} {a} and {b} went to had a {object}. {s} gave it to",
    "Yesterday {a} and {b} met at the {place}. In the end, {s} offered a {object} to",
)
LEAST_IOI_NAMES = 6
# Subject, indirect object, and the subject's second mention; the last token is the span `end`.
IOI_SPANS = ("S1", "IO", "S2")


def usable_names(tokenizer: Any) -> tuple[str, ...]:
    """Return the names that are one token; if there are too few, the largest group of equal token length."""
    by_length: dict[int, list[str]] = {}
    for name in NAMES:
        by_length.setdefault(len(answer_tokens(f" {name}", tokenizer)), []).append(name)
    single = by_length.get(1, [])
    names = single if len(single) >= LEAST_IOI_NAMES else max(by_length.values(), key=len)
    first_tokens = {tuple(answer_tokens(f" {name}", tokenizer)[:1]): name for name in names}
    if len(first_tokens) < LEAST_IOI_NAMES:
        raise InputError(
            f"task 'ioi' needs at least {LEAST_IOI_NAMES} names that this tokenizer splits into equally many tokens "
            f"and that differ in the first, but it has {len(first_tokens)}; use a task file (FILE.jsonl)"
        )
    return tuple(sorted(first_tokens.values(), key=NAMES.index))


def ioi(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "When Mary and John went to the store, John gave a drink to" -> " Mary", both name orders in turn.

    The counterfactual swaps the second subject for the indirect object (MIB's `s2_io_flip`), so that the other name
    becomes the answer: both prompts agree up to that word.
    """
    names = usable_names(tokenizer)
    draw = Draw("ioi", seed)
    swap = False
    while True:
        template, place, object_ = draw.choice(IOI_TEMPLATES), draw.choice(IOI_PLACES), draw.choice(IOI_OBJECTS)
        first, second = draw.sample(names, 2)
        # Everything but the second subject: a clean prompt and all its counterfactuals belong to one split.
        story = template.format(a=first, b=second, s="{s}", place=place, object=object_)
        if not draw.is_new((story,), split):
            continue
        subject, indirect = (first, second) if swap else (second, first)
        swap = not swap
        role = {subject: "S1", indirect: "IO"}
        a, b = (mark(role[name], name) for name in (first, second))
        marked = template.format(a=a, b=b, s=mark("S2", subject), place=place, object=object_)
        corrupted = story.format(s=indirect)
        yield marked_pair(marked, corrupted, f" {indirect}", f" {subject}", IOI_SPANS, first_token_decides=True)


THINGS = "box cup hat chair ball bag coat car bike door lamp shirt kite boat vase rug".split()
COLOURS = "red blue green black white brown yellow orange purple pink gray gold".split()
LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z".split()
MCQA_TEMPLATE = "Question: The {thing} is {colour}. What color is the {thing}?{choices}\nAnswer:"
CHOICES = 4
MCQA_SPANS = ("colour", "right letter", "right choice", "wrong letter", "wrong choice")


def mcqa(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield a question about the colour of a thing, and four choices -> the letter of that colour.

    The counterfactual keeps the question and renames the choices' letters (MIB's symbol counterfactual), so that only
    the letter of the right choice changes.
    """
    letters = tuple(letter for letter in LETTERS if len(answer_tokens(f" {letter}", tokenizer)) == 1)
    if len(letters) < 2 * CHOICES:
        raise InputError(
            f"task 'mcqa' needs {2 * CHOICES} letters that are single tokens, but this tokenizer has {len(letters)}; "
            "use another model, or a task file (FILE.jsonl)"
        )
    draw = Draw("mcqa", seed)
    while True:
        thing, colours, right = draw.choice(THINGS), draw.sample(COLOURS, CHOICES), draw.between(0, CHOICES - 1)
        if not draw.is_new((thing, *colours, right), split):
            continue
        drawn = draw.sample(letters, 2 * CHOICES)
        marked = corrupted = ""
        for place, colour in enumerate(colours):
            kind = "right" if place == right else "wrong"
            marked += f"\n{mark(f'{kind} letter', drawn[place])}. {mark(f'{kind} choice', colour)}"
            corrupted += f"\n{drawn[CHOICES + place]}. {colour}"
        colour = colours[right]
        marked = MCQA_TEMPLATE.format(thing=thing, colour=mark("colour", colour), choices=marked)
        corrupted = MCQA_TEMPLATE.format(thing=thing, colour=colour, choices=corrupted)
        yield marked_pair(marked, corrupted, f" {drawn[right]}", f" {drawn[CHOICES + right]}", MCQA_SPANS)


# Of induction and docstring.
LEAST_WORDS = 16

INDUCTION_WORDS = (
    "sun tree river stone cloud bird lamp book chair door wheel clock house garden water light bread horse table "
    "paper music summer winter morning glass silver gold king road ship field wind fire snow box ball cup dog cat hat"
).split()
INDUCTION_CONTEXT = 8


def induction(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "Words: sun tree river bird sun" -> " tree", the word that followed the last one before.

    The counterfactual has another word there, so its answer is that word.
    """
    words = single_tokens(INDUCTION_WORDS, tokenizer, "induction", LEAST_WORDS)
    draw = Draw("induction", seed)
    while True:
        *context, other = draw.sample(words, INDUCTION_CONTEXT + 1)
        place = draw.between(0, INDUCTION_CONTEXT - 2)
        answer = context[place + 1]
        marked = [mark("A", w) if w == context[place] else mark("B", w) if w == answer else w for w in context]
        swapped = [other if word == answer else word for word in context]
        clean, corrupted = (f"Words: {' '.join(words)} {context[place]}" for words in (marked, swapped))
        pair = marked_pair(clean, corrupted, f" {answer}", f" {other}")
        if draw.accepts(pair, split):
            yield pair


DOCSTRING_WORDS = (
    "load size name path data time value key line page user order state level point count text color shape date file "
    "list table image model house water city game music story field group land world number word head hand room"
).split()
DOCSTRING = '''def {f}(self, {a}, {b}, {c}):
    """{d1} {d2}

    :param {a2}: {d3} {d4}
    :param {b2}: {d5} {d6}
    :param'''


def docstring(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield a function with three arguments, whose docstring has described two -> the name of the third.

    The counterfactual has another third argument.
    """
    words = single_tokens(DOCSTRING_WORDS, tokenizer, "docstring", LEAST_WORDS)
    draw = Draw("docstring", seed)
    while True:
        name, a, b, c, other, *described = draw.sample(words, 11)
        texts = {f"d{number}": word for number, word in enumerate(described, start=1)}
        names = {"a": mark("A", a), "b": mark("B", b), "c": mark("C", c)}
        described_names = {"a2": mark("A described", a), "b2": mark("B described", b)}
        marked = DOCSTRING.format(f=name, **names, **described_names, **texts)
        corrupted = DOCSTRING.format(f=name, a=a, b=b, c=other, a2=a, b2=b, **texts)
        pair = marked_pair(marked, corrupted, f" {c}", f" {other}")
        if draw.accepts(pair, split):
            yield pair


PRONOUN_NAMES = {
    "he": "John Tom James David Paul Mark Peter Simon Jack Adam Kevin Brian Scott Ryan Eric Steve Frank Martin".split(),
    "she": "Mary Anna Sarah Laura Emma Alice Kate Lisa Rachel Susan Jane Amy Julia Helen Rose Grace Lucy Ruth".split(),
}
QUALITIES = "good great kind nice smart funny close old real true".split()
ROLES = "friend teacher doctor cook singer writer leader player student neighbor".split()
PRONOUN_TEMPLATES = (
    "So {name} is a really {quality} {role}, isn't",
    "Well, {name} is such a {quality} {role}, isn't",
    "I think that {name} is a {quality} {role}, isn't",
)
LEAST_NAMES = 4


def pronouns(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "So Paul is a really good friend, isn't" -> " he", both genders in turn.

    The counterfactual has a name of the other gender.
    """
    names = {
        pronoun: single_tokens(listed, tokenizer, "pronouns", LEAST_NAMES) for pronoun, listed in PRONOUN_NAMES.items()
    }
    single_tokens(list(names), tokenizer, "pronouns", len(names))
    draw = Draw("pronouns", seed)
    right, wrong = names
    while True:
        template, quality, role = draw.choice(PRONOUN_TEMPLATES), draw.choice(QUALITIES), draw.choice(ROLES)
        name, other = draw.choice(names[right]), draw.choice(names[wrong])
        marked = template.format(name=mark("name", name), quality=quality, role=mark("role", role))
        corrupted = template.format(name=other, quality=quality, role=role)
        pair = marked_pair(marked, corrupted, f" {right}", f" {wrong}")
        if draw.accepts(pair, split):
            yield pair
            right, wrong = wrong, right


NOUNS = (
    "key box door book friend boy girl tree car house song picture letter flower window table horse bird dog cat "
    "king game player student teacher doctor child-children man-men woman-women"
).split()
PREPOSITIONS = "near behind beside before from with by under".split()
VERBS = (("is", "are"), ("was", "were"), ("has", "have"))
LEAST_NOUNS = 6


def agreement(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The keys near the table" -> " are", not " is", both numbers in turn.

    The counterfactual has the subject in the other number. The noun between subject and verb may have either.
    """
    pairs = []
    for noun in NOUNS:
        singular, _, plural = noun.partition("-")
        pairs.append((singular, plural or f"{singular}{'es' if singular.endswith('x') else 's'}"))
    known = set(single_tokens([noun for pair in pairs for noun in pair], tokenizer, "agreement", 2 * LEAST_NOUNS))
    nouns = [pair for pair in pairs if known >= set(pair)]
    verbs = [single_tokens(verb, tokenizer, "agreement", 2) for verb in VERBS]
    draw = Draw("agreement", seed)
    number = 0
    while True:
        (subject, between), place, verb = draw.sample(nouns, 2), draw.choice(PREPOSITIONS), draw.choice(verbs)
        text = f"The {{}} {place} the {draw.choice(between)}"
        marked, corrupted = text.format(mark("subject", subject[number])), text.format(subject[1 - number])
        pair = marked_pair(marked, corrupted, f" {verb[number]}", f" {verb[1 - number]}")
        if draw.accepts(pair, split):
            yield pair
            number = 1 - number


CAPITALS = dict(
    pair.split("-")
    for pair in (
        "France-Paris Italy-Rome Spain-Madrid Germany-Berlin England-London Russia-Moscow Japan-Tokyo China-Beijing "
        "Greece-Athens Austria-Vienna Poland-Warsaw Ireland-Dublin Egypt-Cairo Iraq-Baghdad Iran-Tehran Cuba-Havana "
        "Portugal-Lisbon Norway-Oslo Sweden-Stockholm Finland-Helsinki Denmark-Copenhagen Hungary-Budapest "
        "Belgium-Brussels Turkey-Ankara Ukraine-Kiev Canada-Ottawa Peru-Lima Kenya-Nairobi Lebanon-Beirut "
        "Syria-Damascus"
    ).split()
)
CAPITAL_TEMPLATES = (
    "The capital of {a} is {capital}. The capital of {b} is",
    "Q: What is the capital of {a}? A: {capital}. Q: What is the capital of {b}? A:",
    "The government of {a} is in {capital}. The government of {b} is in",
    "In {a}, the capital is {capital}. In {b}, the capital is",
    "The capital city of {a} is {capital}. The capital city of {b} is",
    "{a} has the capital {capital}. {b} has the capital",
    "People in {a} go to {capital}. People in {b} go to",
    "Trains in {a} go to {capital}, its capital. Trains in {b} go to its capital,",
    "The king of {a} lived in {capital}. The king of {b} lived in",
    "We went from {a} to {b}: first to the capital {capital}, then to the capital",
    "{a}: {capital}, {b}:",
    "If you visit {a}, see {capital}. If you visit {b}, see",
    "A friend from {a} lives in the capital, {capital}. A friend from {b} lives in the capital,",
)
LEAST_COUNTRIES = 8


def capitals(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The capital of Italy is Rome. The capital of France is" -> " Paris".

    The counterfactual asks for another country.
    """
    known = set(single_tokens([*CAPITALS, *CAPITALS.values()], tokenizer, "capitals", 2 * LEAST_COUNTRIES))
    countries = [country for country, capital in CAPITALS.items() if known >= {country, capital}]
    single_tokens(countries, tokenizer, "capitals", LEAST_COUNTRIES)
    draw = Draw("capitals", seed)
    while True:
        template, (first, country, other) = draw.choice(CAPITAL_TEMPLATES), draw.sample(countries, 3)
        a, b, capital = mark("example", first), mark("country", country), mark("example", CAPITALS[first])
        marked = template.format(a=a, b=b, capital=capital)
        corrupted = template.format(a=first, b=other, capital=CAPITALS[first])
        answers = f" {CAPITALS[country]}", f" {CAPITALS[other]}"
        pair = marked_pair(marked, corrupted, *answers, ("country", "example"))
        if draw.accepts(pair, split):
            yield pair


ARITHMETIC_TEMPLATES = {
    "arithmetic-addition": (
        "The sum of {a} and {b} is",
        "{name} adds {a} and {b} and gets",
        "{name} asks: What is {a} plus {b}? The answer is",
        "{name} writes: {a} + {b} =",
    ),
    "arithmetic-subtraction": (
        "The difference between {a} and {b} is",
        "{name} subtracts {b} from {a} and gets",
        "{name} asks: What is {a} minus {b}? The answer is",
        "{name} writes: {a} - {b} =",
    ),
}
SIGNS = {"arithmetic-addition": 1, "arithmetic-subtraction": -1}
# Two-digit numbers if they have enough results of one token, else single digits.
OPERANDS = (range(10, 100), range(1, 10))
RESULTS = range(1, 199)
LEAST_PROBLEMS = 30


def arithmetic(task: str, tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The sum of 12 and 34 is" -> " 46": distinct pairs of a split, without end. Splits share no prompt.

    The counterfactual is the same sentence about other numbers with another result. Results are single tokens, and all
    numbers of a task have equally many tokens, so that any two of its sentences can be patched into each other.
    So with tokenizers that split numbers into digits, the sums are single digits up to 9, and the differences are of
    two-digit numbers less than 10 apart.
    """
    unknown, templates = unknown_token(tokenizer), ARITHMETIC_TEMPLATES[task]
    for template in templates:
        text = template.format(name=NAMES[0], a=12, b=34)
        if unknown in answer_tokens(text, tokenizer):  # the two operations would be the same sentence
            raise InputError(
                f"task {task!r} has words that this tokenizer doesn't know, as in {text!r}; use another model, or your "
                "own prompts (FILE.jsonl)"
            )
    # The space before a result belongs to the answer, as in normal text, or to the end of the sentence: whichever
    # gives more results of one token.
    results: set[int] = set()
    end = lead = ""
    for space_after, space_before in (("", " "), (" ", "")):
        tokens = {n: next_token(f"is{space_after}", f"{space_before}{n}", tokenizer) for n in RESULTS}
        single = {number for number, token in tokens.items() if token not in (None, unknown)}
        if len(single) > len(results):
            results, end, lead = single, space_after, space_before
    problems = _usable_problems(task, results, tokenizer)
    draw = Draw(task, seed)
    while True:
        template, name = draw.choice(templates), draw.choice(NAMES)
        (a, b, right), (other_a, other_b, wrong) = draw.choice(problems), draw.choice(problems)
        marked = template.format(name=name, a=mark("a", str(a)), b=mark("b", str(b))) + end
        corrupted = template.format(name=name, a=other_a, b=other_b) + end
        pair = marked_pair(marked, corrupted, f"{lead}{right}", f"{lead}{wrong}", ("a", "b"))
        if right != wrong and draw.accepts(pair, split):
            yield pair


add = partial(arithmetic, "arithmetic-addition")
subtract = partial(arithmetic, "arithmetic-subtraction")


def _usable_problems(task: str, results: set[int], tokenizer: Any) -> list[tuple[int, int, int]]:
    """Return (a, b, result) for numbers of the most common token length, from the first range with enough of them."""
    for numbers in OPERANDS:
        by_length: dict[int, list[int]] = {}
        for number in numbers:
            by_length.setdefault(len(answer_tokens(f"is {number}", tokenizer)), []).append(number)
        operands = max(by_length.values(), key=len)
        problems = [(a, b, a + SIGNS[task] * b) for a in operands for b in operands]
        usable = [problem for problem in problems if problem[2] in results]
        if len(usable) >= LEAST_PROBLEMS:
            return usable
    raise InputError(
        f"task {task!r} needs at least {LEAST_PROBLEMS} problems with a result that is a single token, but this "
        f"tokenizer has {len(results)} such results from {RESULTS[0]} to {RESULTS[-1]}; use another model, or a "
        "task file (FILE.jsonl)"
    )


EVENTS = (
    "war reign empire project mission voyage strike trial siege festival drought journey alliance crisis "
    "famine campaign treaty expedition construction dynasty"
).split()
CENTURIES = (11, 12, 13, 14, 15, 16, 17)
YEAR_TEMPLATES = (
    "The {event} lasted from the year {century}{year:02d} to the year {century}",
    "The {event} began in the year {century}{year:02d} and ended in the year {century}",
)
NEAREST, FARTHEST = 2, 98
LEAST_YEARS = 40


def usable_endings(tokenizer: Any) -> tuple[Sequence[int], Sequence[int], int, int]:
    """Return two-digit years if enough of them are tokens, else single digits if the tokenizer splits numbers.

    Four values: the years in which a prompt can start, so that there is an answer on either side; the numbers that can
    follow the century, ascending; how many years such an answer stands for; how many digits it has.
    """
    years = []
    for year in range(NEAREST, FARTHEST + 1):
        token = answer_tokens(f"{year:02d}", tokenizer)
        in_centuries = (answer_tokens(f" {century}{year:02d}", tokenizer)[-1:] for century in CENTURIES)
        if len(token) == 1 and all(last == token for last in in_centuries):
            years.append(year)
    if len(years) >= LEAST_YEARS:
        return years[1:-1], years, 1, 2
    for century in CENTURIES:
        tokens = {next_token(f" {century}", f"{digit}", tokenizer) for digit in range(10)}
        longer = {next_token(f" {century}{digit}", "0", tokenizer) for digit in range(10)}
        if len(tokens) < 10 or None in tokens | longer:
            raise InputError(
                "task 'greater-than' needs years whose last two digits are one token, or one token each, but this "
                f"tokenizer has only {len(years)} of {FARTHEST - NEAREST + 1} two-digit years and doesn't split all "
                "others digit by digit; use another model, or a task file (FILE.jsonl)"
            )
    return range(10, 90), range(10), 10, 1


def greater_than(tokenizer: Any, split: str, seed: int) -> Iterator[PromptPair]:
    """Yield "The war lasted from the year 1732 to the year 17" -> a later year, not an earlier one.

    The answer is the token that follows the century: the year in the century ("54") for tokenizers that have two-digit
    tokens, and its first digit ("5") for those that split numbers digit by digit. A decade decides the order only if it
    isn't that of the first year, so answers are digits above and below its own. Any later year is right, any earlier
    one wrong: by default, the metric is the probability of all later ones minus that of all earlier ones. Logit
    differences are taken with one of each.

    The counterfactual starts in the year 01 of the century, after which every year, and every decade, can follow: what
    the clean prompt forbids is then allowed. Splits share no clean prompt.
    """
    starts, answers, years_of_answer, digits = usable_endings(tokenizer)
    draw = Draw("greater-than", seed)
    while True:
        template, event, century = draw.choice(YEAR_TEMPLATES), draw.choice(EVENTS), draw.choice(CENTURIES)
        year = draw.choice(starts)
        if not draw.is_new((template, event, century, year), split):
            continue
        first = year // years_of_answer
        texts = {answer: f"{answer:0{digits}d}" for answer in answers}
        later = tuple(text for answer, text in texts.items() if answer > first)
        earlier = tuple(text for answer, text in texts.items() if answer < first)
        correct, incorrect = draw.choice(later), draw.choice(earlier)
        corrupted = template.format(event=event, century=century, year=1)
        start = template.removesuffix("{century}").replace("{year:02d}", mark("year", "{year:02d}"))
        named = {"event": mark("event", event), "century": mark("century", str(century))}
        marked = start.format(**named, year=year) + str(century)
        yield marked_pair(marked, corrupted, correct, incorrect, also_correct=later, also_incorrect=earlier)
