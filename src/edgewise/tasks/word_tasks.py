"""Tasks whose answers are common words: induction, docstring, pronouns, agreement and capitals.

Each generator yields distinct pairs of a split, without end. Splits share no prompt, clean or corrupted.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .draw import Draw
from .spans import end_span, mark, read_markers
from .task import PromptPair
from .tokens import single_tokens

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
        clean, spans = read_markers(f"Words: {' '.join(marked)} {context[place]}")
        corrupted = clean.replace(f" {answer} ", f" {other} ")
        if draw.accepts(clean, corrupted, split):
            yield PromptPair(clean, corrupted, f" {answer}", f" {other}", spans=(*spans, end_span(clean)))


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
        arguments = {"f": name, "a2": mark("A described", a), "b2": mark("B described", b)}
        marked = DOCSTRING.format(a=mark("A", a), b=mark("B", b), c=mark("C", c), **arguments, **texts)
        clean, spans = read_markers(marked)
        corrupted, _ = read_markers(DOCSTRING.format(a=a, b=b, c=other, **arguments, **texts))
        if draw.accepts(clean, corrupted, split):
            yield PromptPair(clean, corrupted, f" {c}", f" {other}", spans=(*spans, end_span(clean)))


NAMES = {
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
    names = {pronoun: single_tokens(listed, tokenizer, "pronouns", LEAST_NAMES) for pronoun, listed in NAMES.items()}
    single_tokens(list(names), tokenizer, "pronouns", len(names))
    draw = Draw("pronouns", seed)
    right, wrong = names
    while True:
        template, quality, role = draw.choice(PRONOUN_TEMPLATES), draw.choice(QUALITIES), draw.choice(ROLES)
        name, other = draw.choice(names[right]), draw.choice(names[wrong])
        marked = template.format(name=mark("name", name), quality=quality, role=mark("role", role))
        clean, spans = read_markers(marked)
        corrupted = template.format(name=other, quality=quality, role=role)
        if draw.accepts(clean, corrupted, split):
            yield PromptPair(clean, corrupted, f" {right}", f" {wrong}", spans=(*spans, end_span(clean)))
            right, wrong = wrong, right


NOUNS = (
    "key box door book friend boy girl tree car house song picture letter flower window table horse bird dog cat "
    "king game player student teacher doctor child-children man-men woman-women"
).split()
PLACES = "near behind beside before from with by under".split()
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
        (subject, between), place, verb = draw.sample(nouns, 2), draw.choice(PLACES), draw.choice(verbs)
        text = f"The {{}} {place} the {draw.choice(between)}"
        clean, spans = read_markers(text.format(mark("subject", subject[number])))
        corrupted = text.format(subject[1 - number])
        if draw.accepts(clean, corrupted, split):
            spans = (*spans, end_span(clean))
            yield PromptPair(clean, corrupted, f" {verb[number]}", f" {verb[1 - number]}", spans=spans)
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
        clean, named = read_markers(template.format(a=a, b=b, capital=capital))
        corrupted = template.format(a=first, b=other, capital=CAPITALS[first])
        if draw.accepts(clean, corrupted, split):
            spans = (*sorted(named), end_span(clean))
            yield PromptPair(clean, corrupted, f" {CAPITALS[country]}", f" {CAPITALS[other]}", spans=spans)
