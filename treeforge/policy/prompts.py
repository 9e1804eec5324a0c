"""From a question and the steps so far to the exact text, or messages, that a language model continues.

Pure functions of (`StepsConfig`, question, prefix), and the presets: a step format with the sampling that suits it.
"""

from __future__ import annotations

from treeforge.config import Config, SamplingConfig, StepsConfig

QUESTION = "{question}"

# Our own problems; none stands in datasets/. One line a step, so that "\n" ends a step, and always the same last line.
# What comes after a blank line is no longer the solution, so "\n\n" stops a rollout.
_FEW_SHOT = """\
Question: Ben has 12 pens and gives 5 of them to his sister. How many pens does Ben still have?
Answer:
Ben has 12 - 5 = 7 pens left.
The answer is 7.

Question: A tray holds 6 cakes. How many cakes do 4 trays hold?
Answer:
There are 4 trays of 6 cakes, so 4 * 6 = 24 cakes.
The answer is 24.

Question: A baker has 14 rolls. He sells 6 of them and then bakes 9 more. How many rolls does he have now?
Answer:
He sells 6 rolls, so he has 14 - 6 = 8 rolls left.
He bakes 9 more, so he has 8 + 9 = 17 rolls.
The answer is 17.

Question: A coach splits 20 players into 4 equal teams. How many players are in each team?
Answer:
Each of the 4 teams gets 20 / 4 = 5 players.
The answer is 5.

Question: A crate holds 5 jars. Omar fills 6 crates and gives 12 jars to his aunt. How many jars are left?
Answer:
The 6 crates hold 6 * 5 = 30 jars.
He gives 12 jars away, so 30 - 12 = 18 jars are left.
The answer is 18.

Question: What is 7 * 8 - 15?
Answer:
First, 7 * 8 = 56.
Then, 56 - 15 = 41.
The answer is 41.

Question: A kite costs $9 and a ball costs $4. How many dollars do 2 kites and 3 balls cost together?
Answer:
The 2 kites cost 2 * 9 = 18 dollars.
The 3 balls cost 3 * 4 = 12 dollars.
Together they cost 18 + 12 = 30 dollars.
The answer is 30.

Question: There are 16 girls and 11 boys in a choir. How many children are in the choir?
Answer:
There are 16 + 11 = 27 children.
The answer is 27.

Question: {question}
Answer:
"""

# The question comes last, so that all problems share the evaluation of what stands before it.
_STEP_PARAGRAPHS = """\
Solve the problem below step by step. Write each step as one short paragraph that begins with "Step 1:", "Step 2:" and \
so on, and leave a blank line between steps. End the last step with the final answer inside \\boxed{}.

Problem: {question}"""

# The headers and the end mark are those of the HRM paper's released code; the wording is ours. The paper's code cuts
# at the next header, which leaves that header at the end of the step before it; a blank line ends a step here.
_HRM_PAPER = """\
Solve a mathematics problem step by step. Open each step with a line '# Step 1', '# Step 2' and so on, write the
reasoning of the step below it without blank lines, and leave one blank line between steps. After the last step write
a line '# Answer', below it the value alone inside \\boxed{}, and then '# END!'. For example:

Question: 9 - 4 + 2 = ?

# Step 1
Subtract first: 9 - 4 = 5.

# Step 2
Then add: 5 + 2 = 7.

# Answer
\\boxed{7}
# END!

Now the problem to solve.

Question: {question}

"""


class Preset(Config, frozen=True):
    """A step format together with the sampling that suits it."""

    about: str
    """One line: for which models, and what a step is."""
    steps: StepsConfig
    sampling: SamplingConfig


PRESETS: dict[str, Preset] = {
    preset.steps.preset: preset
    for preset in (
        Preset(
            about="few-shot completion for small base-like models (SmolLM2-135M): one line a step, 'The answer is N.'",
            steps=StepsConfig(
                preset="smollm",
                template="completion",
                prompt=_FEW_SHOT,
                delimiter="\n",
                stop=("\n\n", "Question:"),
                answer_markers=("The answer is",),
            ),
            sampling=SamplingConfig(temperature=0.7, max_tokens=160, max_step_tokens=64),
        ),
        Preset(
            about="chat for general instruct models (Qwen2.5 and alike): 'Step k:' paragraphs, \\boxed{}",
            steps=StepsConfig(
                preset="qwen-chat",
                template="chat",
                prompt=_STEP_PARAGRAPHS,
                delimiter="\n\n",
                answer_markers=("\\boxed{",),
            ),
            sampling=SamplingConfig(temperature=0.8, max_tokens=512, max_step_tokens=192),
        ),
        Preset(
            about="chat for Qwen2.5-Math: its recommended system message, paragraphs, \\boxed{}",
            steps=StepsConfig(
                preset="qwen-math",
                template="chat",
                system="Please reason step by step, and put your final answer within \\boxed{}.",
                prompt=QUESTION,
                delimiter="\n\n",
                answer_markers=("\\boxed{",),
            ),
            sampling=SamplingConfig(temperature=0.8, max_tokens=2048, max_step_tokens=512),
        ),
        Preset(
            about="the HRM paper's step headers ('# Step k', '# Answer') and temperature, for Qwen2.5-7B-Math-Instruct",
            steps=StepsConfig(
                preset="hrm-paper",
                template="completion",
                prompt=_HRM_PAPER,
                delimiter="\n\n",
                stop=("# END!",),
                answer_markers=("\\boxed{",),
            ),
            sampling=SamplingConfig(temperature=0.1, max_tokens=2048, max_step_tokens=1024),
        ),
    )
}
"""Step formats by name; `StepsConfig.preset` holds the name. `hrm-paper`: arXiv 2503.13551 and its released code."""


def render(config: StepsConfig, question: str, prefix: str) -> str:
    """The text that a completion model continues: prompt with the question, start of the solution, steps so far.

    `{question}` is replaced literally and once: other braces, and a `{question}` inside the question, are kept.
    """
    return _with_question(config, question) + config.assistant_start + prefix


def render_chat(config: StepsConfig, question: str, prefix: str) -> list[dict[str, str]]:
    """The messages of a chat: system and assistant's message so far, each where there is one, around the user's.

    The model has to *continue* that last message, not to answer it.
    """
    messages = [{"role": "system", "content": config.system}] if config.system else []
    messages.append({"role": "user", "content": _with_question(config, question)})
    if started := config.assistant_start + prefix:
        messages.append({"role": "assistant", "content": started})
    return messages


def _with_question(config: StepsConfig, question: str) -> str:
    return config.prompt.replace(QUESTION, question)
