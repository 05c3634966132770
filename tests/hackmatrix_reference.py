"""HackMatrix in plain Python: a slow, direct reading of the rules, to compare the fast environment with.

Section numbers (§) are those of the specification. The rules are functions that change a `Game`; every random
decision is asked of a `Dice`, so a test can decide each of them by overriding a method.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

Position = tuple[int, int]

SIZE = 6
LAST_STAGE = 8
FULL_HP = 3
POSITIONS: tuple[Position, ...] = tuple((row, col) for row in range(SIZE) for col in range(SIZE))
CORNERS: tuple[Position, ...] = ((0, 0), (0, 5), (5, 0), (5, 5))
DIRECTIONS: tuple[Position, ...] = ((1, 0), (-1, 0), (0, -1), (0, 1))  # up, down, left, right: the order of all ties
EIGHT: tuple[Position, ...] = tuple((row, col) for row in (-1, 0, 1) for col in (-1, 0, 1) if (row, col) != (0, 0))

SIPHON = 4
FIRST_PROGRAM = 5
ACTIONS = 28

ENEMY_TYPES = ("virus", "daemon", "glitch", "cryptog")
MAX_HP = {"virus": 2, "daemon": 3, "glitch": 2, "cryptog": 2}

STAGE_REWARDS = (1, 2, 4, 8, 16, 32, 64, 100)
STARTING_BONUSES = (("credits", 10), ("energy", 11), ("data_siphons", 1))


# ---------------------------------------------------------------------------------------------------------------------
# State (§2)


@dataclass
class Cell:
    content: str = "empty"  # or "block", "pickup", "exit"
    kind: str = ""  # of a block: "data" or "program"; of a question block, what it hides
    question: bool = False
    points: int = 0
    program: int | None = None
    spawn: int = 0
    credits: int = 0
    energy: int = 0
    siphoned: bool = False
    centre: bool = False

    @property
    def is_block(self) -> bool:
        return self.content == "block"

    def become(self, content: str) -> None:
        """Changes the content and forgets any block; the resource and the two flags of the cell stay."""
        self.content = content
        self.kind, self.question, self.points, self.program, self.spawn = "", False, 0, None, 0

    def become_data(self, points: int, spawn: int, question: bool = False) -> None:
        self.become("block")
        self.kind, self.question, self.points, self.spawn = "data", question, points, spawn

    def become_program(self, program: int, spawn: int, question: bool = False) -> None:
        self.become("block")
        self.kind, self.question, self.program, self.spawn = "program", question, program, spawn


@dataclass
class Enemy:
    type: str
    row: int
    col: int
    hp: int
    disabled: int = 0
    stunned: bool = False
    from_siphon: bool = False
    scheduled: bool = False

    @property
    def position(self) -> Position:
        return self.row, self.col

    @property
    def idle(self) -> bool:
        return self.stunned or self.disabled > 0


@dataclass
class Transmission:
    row: int
    col: int
    turns: int
    type: str
    from_siphon: bool = False
    scheduled: bool = False

    @property
    def position(self) -> Position:
        return self.row, self.col


@dataclass
class Events:
    """What the last step did: kills that pay, a pickup by walking, and how it ended. A win also counts as completed."""

    kills: int = 0
    pickup: bool = False
    completed: bool = False
    won: bool = False
    died: bool = False


@dataclass
class Snapshot:
    """What UNDO brings back (§10). Its enemies and transmissions have neither origin flag."""

    player: dict[str, int]
    turn: int
    owned: set[int]
    enemies: list[Enemy]
    transmissions: list[Transmission]
    cells: dict[Position, Cell]
    show: bool
    calm: bool
    atk_uses: int


PLAYER_FIELDS = ("row", "col", "hp", "credits", "energy", "data_siphons", "attack_damage", "score")


def empty_board() -> dict[Position, Cell]:
    return {position: Cell() for position in POSITIONS}


@dataclass
class Game:
    row: int
    col: int
    hp: int = FULL_HP
    credits: int = 0
    energy: int = 0
    data_siphons: int = 0
    attack_damage: int = 1
    score: int = 0
    cells: dict[Position, Cell] = field(default_factory=empty_board)
    enemies: list[Enemy] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    stage: int = 1
    turn: int = 0
    owned: set[int] = field(default_factory=set)
    exit: Position = (5, 5)
    show: bool = False
    calm: bool = False
    step: bool = False
    atk_uses: int = 0
    interval: int = 12
    next_task: int = 12
    pending: int = 0
    history: list[Snapshot] = field(default_factory=list)
    depth: int = 8
    undo_across_stages: bool = True
    events: Events = field(default_factory=Events)

    @classmethod
    def from_scenario(cls, scenario: dict[str, Any]) -> Game:
        """Returns the state that a valid scenario (§16) describes."""
        player = scenario["player"]
        game = cls(
            row=player["row"],
            col=player["col"],
            hp=player.get("hp", FULL_HP),
            credits=player.get("credits", 0),
            energy=player.get("energy", 0),
            data_siphons=player.get("dataSiphons", 0),
            attack_damage=player.get("attackDamage", 1),
            score=player.get("score", 0),
            stage=scenario.get("stage", 1),
            turn=scenario.get("turn", 0),
            owned={action - FIRST_PROGRAM for action in scenario.get("ownedPrograms", [])},
            show=scenario.get("showActivated", False),
            calm=scenario.get("scheduledTasksDisabled", False),
            step=scenario.get("stepActive", False),
            atk_uses=scenario.get("atkPlusUses", 0),
            interval=scenario.get("scheduledTaskInterval", 12),
            next_task=scenario.get("nextScheduledTaskTurn", 12),
        )
        game.enemies = [
            Enemy(
                type=entry["type"],
                row=entry["row"],
                col=entry["col"],
                hp=entry["hp"],
                disabled=entry.get("disabledTurns", 0),
                stunned=entry.get("stunned", False),
                from_siphon=entry.get("spawnedFromSiphon", False),
                scheduled=entry.get("isFromScheduledTask", False),
            )
            for entry in scenario.get("enemies", [])
        ]
        game.transmissions = [
            Transmission(
                row=entry["row"],
                col=entry["col"],
                turns=entry["turnsRemaining"],
                type=entry["enemyType"],
                from_siphon=entry.get("spawnedFromSiphon", False),
                scheduled=entry.get("isFromScheduledTask", False),
            )
            for entry in scenario.get("transmissions", [])
        ]
        for entry in scenario.get("blocks", []):
            place_scenario_block(game.cells[entry["row"], entry["col"]], entry)
        for entry in scenario.get("resources", []):
            place_scenario_resource(game.cells[entry["row"], entry["col"]], entry)
        for row, col in scenario.get("siphonedCells", []):
            game.cells[row, col].siphoned = True
        if scenario.get("exit") is not None:
            game.exit = scenario["exit"]["row"], scenario["exit"]["col"]
        game.cells[game.exit].become("exit")
        return game

    @property
    def position(self) -> Position:
        return self.row, self.col

    @property
    def here(self) -> Cell:
        return self.cells[self.position]

    def enemies_at(self, position: Position) -> list[Enemy]:
        """Returns the enemies on a cell, earliest first."""
        return [enemy for enemy in self.enemies if enemy.position == position]

    def transmission_at(self, position: Position) -> Transmission | None:
        return next((one for one in self.transmissions if one.position == position), None)

    def non_blocks(self) -> set[Position]:
        return {position for position, cell in self.cells.items() if not cell.is_block}


def place_scenario_block(cell: Cell, entry: dict[str, Any]) -> None:
    name, index = entry.get("programType"), entry.get("programActionIndex")
    question = entry["type"] == "question"
    holds_program = entry["type"] == "program" or (question and (name is not None or index is not None))
    if holds_program:
        program = PROGRAM_NAMES.index(name) if name is not None else entry["programActionIndex"] - FIRST_PROGRAM
        cell.become_program(program, entry.get("spawnCount", 2), question)
    else:
        points = entry.get("points", 5)
        cell.become_data(points, entry.get("spawnCount", points), question)
    cell.siphoned = entry.get("siphoned", False)


def place_scenario_resource(cell: Cell, entry: dict[str, Any]) -> None:
    if entry.get("dataSiphon", False):
        cell.become("pickup")
    elif entry.get("credits", 0) > 0:
        cell.credits, cell.energy = entry["credits"], 0
    elif entry.get("energy", 0) > 0:
        cell.credits, cell.energy = 0, entry["energy"]


# ---------------------------------------------------------------------------------------------------------------------
# Geometry (§1)


def shifted(position: Position, offset: Position) -> Position:
    return position[0] + offset[0], position[1] + offset[1]


def inside(position: Position) -> bool:
    return 0 <= position[0] < SIZE and 0 <= position[1] < SIZE


def adjacent_cells(position: Position) -> list[Position]:
    """Returns the up to four adjacent cells inside the board, in the order up, down, left, right."""
    return [near for near in (shifted(position, offset) for offset in DIRECTIONS) if inside(near)]


def eight_neighbours(position: Position) -> list[Position]:
    return [near for near in (shifted(position, offset) for offset in EIGHT) if inside(near)]


def cross(position: Position) -> list[Position]:
    return [position, *adjacent_cells(position)]


def manhattan(one: Position, other: Position) -> int:
    return abs(one[0] - other[0]) + abs(one[1] - other[1])


def walking_distances(goal: Position, walkable: Container[Position]) -> dict[Position, int]:
    """Returns the distance to the goal of every cell that reaches it over walkable cells, itself and the goal too."""
    if goal not in walkable:
        return {}
    distances = {goal: 0}
    queue = deque([goal])
    while queue:
        position = queue.popleft()
        for near in adjacent_cells(position):
            if near in walkable and near not in distances:
                distances[near] = distances[position] + 1
                queue.append(near)
    return distances


# ---------------------------------------------------------------------------------------------------------------------
# Random decisions (§15)


class Dice:
    """Makes every random decision of the game. Override a method to decide it otherwise."""

    def __init__(self, seed: int | None = None) -> None:
        self.random = random.Random(seed)

    def start_corner(self, corners: Sequence[Position]) -> Position:
        return self.random.choice(corners)

    def starting_bonus(self, bonuses: Sequence[tuple[str, int]]) -> tuple[str, int]:
        """Returns one of the bonuses, each a player field and the amount added to it."""
        return self.random.choice(bonuses)

    def order(self, enemies: list[Enemy]) -> list[Enemy]:
        """Returns the same enemies in acting order; asked once for each of the two sub-steps of an enemy turn."""
        return self.random.sample(enemies, len(enemies))

    def spawn_cell(self, cells: list[Position]) -> Position:
        return self.random.choice(cells)

    def spawn_type(self) -> str:
        return self.random.choice(ENEMY_TYPES)

    def warp_target(self, targets: list[Enemy | Transmission]) -> int:
        """Returns the index of the target: enemies come first, then transmissions, both in their order."""
        return self.random.randrange(len(targets))

    def poly_type(self, enemy: Enemy, other_types: list[str]) -> str:
        return self.random.choice(other_types)

    def stage_board(self, game: Game) -> None:
        """Fills the fresh, empty board of a stage: exit (cell and position), pickups, blocks and resources (§9)."""
        self.place_corners(game)
        self.place_blocks(game)
        self.place_resources(game)

    def place_corners(self, game: Game) -> None:
        free = [corner for corner in CORNERS if corner != game.position]
        game.exit = self.random.choice(free)
        for corner in free:
            game.cells[corner].become("exit" if corner == game.exit else "pickup")

    def place_blocks(self, game: Game) -> None:
        unplaced = list(range(len(PROGRAMS)))
        for position in self.block_positions(game):
            cell = game.cells[position]
            holds_data = self.random.random() < 0.5
            question = self.random.random() < 0.1
            if holds_data:
                points = self.random.randint(1, 9)
                cell.become_data(points, points, question)
            else:
                program = self.random.choice(unplaced)
                unplaced.remove(program)
                cell.become_program(program, PROGRAMS[program].spawn, question)

    def block_positions(self, game: Game) -> list[Position]:
        """Returns the first acceptable draw of positions, or none after 100 failures."""
        taken = {one.position for one in (*game.enemies, *game.transmissions)}
        allowed = [position for position in POSITIONS if position not in CORNERS and position not in taken]
        count = min(self.random.randint(5, 11), len(allowed))
        for _ in range(100):
            blocks = self.random.sample(allowed, count)
            if acceptable_blocks(blocks, game.exit):
                return blocks
        return []

    def place_resources(self, game: Game) -> None:
        for cell in game.cells.values():
            if cell.content in ("empty", "pickup"):
                (amount,) = self.random.choices((1, 2, 3), weights=(45, 45, 10))
                if self.random.random() < 0.5:
                    cell.credits = amount
                else:
                    cell.energy = amount


def acceptable_blocks(blocks: Iterable[Position], exit_position: Position) -> bool:
    """Whether all else can be walked to from (0, 0), not through the exit, and no block is enclosed by blocks."""
    ground = set(POSITIONS) - set(blocks)
    reached = {(0, 0)}
    queue = deque([(0, 0)])
    while queue:
        position = queue.popleft()
        if position == exit_position and position != (0, 0):
            continue
        for near in adjacent_cells(position):
            if near in ground and near not in reached:
                reached.add(near)
                queue.append(near)
    return reached == ground and all(any(near in ground for near in adjacent_cells(block)) for block in blocks)


# ---------------------------------------------------------------------------------------------------------------------
# New game, stages (§9)


def new_game(dice: Dice) -> Game:
    """Returns the start of a game, stage 1 set up."""
    row, col = dice.start_corner(CORNERS)
    game = Game(row, col)
    bonus, amount = dice.starting_bonus(STARTING_BONUSES)
    setattr(game, bonus, getattr(game, bonus) + amount)
    set_up_stage(game, dice)
    return game


def set_up_stage(game: Game, dice: Dice) -> None:
    game.turn = 0
    game.next_task = game.interval
    game.show = game.calm = game.step = False
    game.atk_uses = 0
    game.cells = empty_board()
    dice.stage_board(game)
    spawn(game, game.stage, dice)


def complete_stage(game: Game, dice: Dice) -> None:
    game.events.completed = True
    game.hp = min(FULL_HP, game.hp + 1)
    if game.stage == LAST_STAGE:
        game.events.won = True
        return
    game.stage += 1
    game.interval = 13 - game.stage
    if not game.undo_across_stages:
        game.history.clear()
    set_up_stage(game, dice)


# ---------------------------------------------------------------------------------------------------------------------
# Spawning (§8)


def spawn(game: Game, count: int, dice: Dice, from_siphon: bool = False, scheduled: bool = False) -> None:
    for _ in range(count):
        empty = empty_cells(game)
        if not empty:
            return
        sheltered = [position for position in empty if not in_line_of_fire(game, position)]
        row, col = dice.spawn_cell(sheltered or empty)
        game.transmissions.append(Transmission(row, col, 1, dice.spawn_type(), from_siphon, scheduled))


def empty_cells(game: Game) -> list[Position]:
    """Returns the cells without player, enemy, transmission and block, in row-major order."""
    taken = {game.position, *(one.position for one in (*game.enemies, *game.transmissions))}
    return [position for position in POSITIONS if position not in taken and not game.cells[position].is_block]


def in_line_of_fire(game: Game, position: Position) -> bool:
    if position[0] != game.row and position[1] != game.col:
        return False
    reach = manhattan(position, game.position)
    on_the_way = [one for one in POSITIONS if manhattan(position, one) + manhattan(one, game.position) == reach]
    between = [one for one in on_the_way if one not in (position, game.position)]
    return not any(game.cells[one].is_block or game.enemies_at(one) for one in between)


# ---------------------------------------------------------------------------------------------------------------------
# Damage (§3)


def count_kill(game: Game, victim: Enemy | Transmission) -> None:
    if not victim.scheduled:
        game.events.kills += 1


def hit(game: Game, enemies: Iterable[Enemy], damage: int) -> None:
    """Damages the enemies; removes those at 0 hp as kills and stuns the others."""
    for enemy in enemies:
        enemy.hp = max(0, enemy.hp - damage)
        if enemy.hp == 0:
            count_kill(game, enemy)
        else:
            enemy.stunned = True
    game.enemies = [enemy for enemy in game.enemies if enemy.hp > 0]


def remove_enemies_at(game: Game, position: Position) -> None:
    """Removes all enemies of a cell; at most one kill, which the earliest decides."""
    victims = game.enemies_at(position)
    if victims:
        count_kill(game, victims[0])
        game.enemies = [enemy for enemy in game.enemies if enemy.position != position]


def remove_transmission_at(game: Game, position: Position) -> None:
    victim = game.transmission_at(position)
    if victim is not None:
        count_kill(game, victim)
        game.transmissions = [one for one in game.transmissions if one.position != position]


# ---------------------------------------------------------------------------------------------------------------------
# The player's part (§4, §6)


def attack_or_walk(game: Game, direction: Position) -> bool:
    """Shoots the first thing in line or walks one cell; returns whether an exit cell was walked onto."""
    ahead = shifted(game.position, direction)
    position = ahead
    while inside(position):
        if game.transmission_at(position):
            remove_transmission_at(game, position)
            return False
        if enemies := game.enemies_at(position):
            hit(game, enemies[:1], game.attack_damage)
            return False
        if game.cells[position].is_block:
            break
        position = shifted(position, direction)
    game.row, game.col = ahead
    if game.here.content == "pickup":
        game.here.become("empty")
        game.data_siphons += 1
        game.events.pickup = True
    return game.here.content == "exit"


def siphon(game: Game) -> None:
    game.here.centre = True
    for position in cross(game.position):
        cell = game.cells[position]
        if cell.siphoned:
            continue
        if cell.is_block:
            if cell.kind == "data":
                game.score += cell.points
            elif cell.program is not None:
                game.owned.add(cell.program)
            cell.question = False
            game.pending += cell.spawn
            cell.spawn = 0
        else:
            game.credits += cell.credits
            game.energy += cell.energy
            cell.credits = cell.energy = 0
        cell.siphoned = True
    game.data_siphons -= 1
    game.interval = max(4, game.interval - 1)
    game.next_task += 5


# ---------------------------------------------------------------------------------------------------------------------
# Programs (§5)


def is_near_target(game: Game) -> bool:
    """Whether one of the player's eight neighbours holds a block, an enemy or a transmission."""
    return any(
        game.cells[near].is_block or game.enemies_at(near) or game.transmission_at(near)
        for near in eight_neighbours(game.position)
    )


def enemies_on_blocks(game: Game) -> list[Enemy]:
    return [enemy for enemy in game.enemies if game.cells[enemy.position].is_block]


def enemies_in_row(game: Game) -> list[Enemy]:
    return [enemy for enemy in game.enemies if enemy.row == game.row]


def enemies_in_column(game: Game) -> list[Enemy]:
    return [enemy for enemy in game.enemies if enemy.col == game.col]


def enemies_on_siphoned(game: Game) -> list[Enemy]:
    return [enemy for enemy in game.enemies if game.cells[enemy.position].siphoned]


def enemies_of_type(game: Game, enemy_type: str) -> list[Enemy]:
    return [enemy for enemy in game.enemies if enemy.type == enemy_type]


def reducible_blocks(game: Game) -> list[Cell]:
    return [cell for cell in game.cells.values() if cell.is_block and not cell.siphoned and cell.spawn > 0]


def always(_: Game) -> bool:
    return True


class Program(NamedTuple):
    name: str
    credits: int
    energy: int
    spawn: int
    condition: Callable[[Game], object]  # true or false as a truth value


PROGRAMS: tuple[Program, ...] = (
    Program("push", 0, 2, 4, lambda game: game.enemies),
    Program("pull", 0, 2, 4, lambda game: game.enemies),
    Program("crash", 3, 2, 6, is_near_target),
    Program("warp", 2, 2, 5, lambda game: game.enemies or game.transmissions),
    Program("poly", 1, 1, 3, lambda game: game.enemies),
    Program("wait", 0, 1, 1, always),
    Program("debug", 3, 0, 4, enemies_on_blocks),
    Program("row", 3, 1, 2, enemies_in_row),
    Program("col", 3, 1, 2, enemies_in_column),
    Program("undo", 1, 0, 3, lambda game: game.history),
    Program("step", 0, 3, 4, always),
    Program("siph+", 5, 0, 7, always),
    Program("exch", 4, 0, 3, lambda game: game.credits >= 4),
    Program("show", 2, 0, 2, lambda game: not game.show),
    Program("reset", 0, 4, 2, lambda game: game.hp < FULL_HP),
    Program("calm", 2, 4, 6, lambda game: not game.calm),
    Program("d_bom", 3, 0, 4, lambda game: enemies_of_type(game, "daemon")),
    Program("delay", 1, 2, 4, lambda game: game.transmissions),
    Program("anti-v", 3, 0, 4, lambda game: enemies_of_type(game, "virus")),
    Program("score", 0, 5, 5, lambda game: game.stage < LAST_STAGE),
    Program("reduc", 2, 1, 3, reducible_blocks),
    Program("atk+", 4, 4, 8, lambda game: game.atk_uses < 2),
    Program("hack", 2, 2, 4, lambda game: any(cell.siphoned for cell in game.cells.values())),
)
PROGRAM_NAMES = [program.name for program in PROGRAMS]
WAIT = FIRST_PROGRAM + PROGRAM_NAMES.index("wait")
RESET = FIRST_PROGRAM + PROGRAM_NAMES.index("reset")


def run_program(game: Game, index: int, dice: Dice) -> bool:
    """Pays for a program and runs it; returns whether it put the player on the exit position."""
    program = PROGRAMS[index]
    game.credits -= program.credits
    game.energy -= program.energy
    match program.name:
        case "push":
            displace_enemies(game, away=True)
        case "pull":
            displace_enemies(game, away=False)
        case "crash":
            crash(game)
        case "warp":
            warp(game, dice)
            return game.position == game.exit
        case "poly":
            poly(game, dice)
        case "wait":
            pass
        case "debug":
            hit(game, enemies_on_blocks(game), game.attack_damage)
        case "row":
            hit(game, enemies_in_row(game), game.attack_damage)
        case "col":
            hit(game, enemies_in_column(game), game.attack_damage)
        case "undo":
            undo(game)
        case "step":
            game.step = True
        case "siph+":
            game.data_siphons += 1
        case "exch":
            game.energy += 4
        case "show":
            game.show = True
        case "reset":
            game.hp = FULL_HP
        case "calm":
            game.calm = True
        case "d_bom":
            bomb_nearest_daemon(game)
        case "delay":
            for transmission in game.transmissions:
                transmission.turns += 3
        case "anti-v":
            hit(game, enemies_of_type(game, "virus"), 1)
        case "score":
            game.score += LAST_STAGE - game.stage
        case "reduc":
            for cell in reducible_blocks(game):
                cell.spawn -= 1
        case "atk+":
            game.attack_damage += 1
            game.atk_uses += 1
        case "hack":
            hit(game, enemies_on_siphoned(game), game.attack_damage)
        case unknown:
            raise ValueError(f"no effect is known for program {unknown}")
    return False


def displace_enemies(game: Game, away: bool) -> None:
    """PUSH (away) or PULL: all choose from where they stand; of those that choose the same cell the earliest moves."""
    choices = [displaced(enemy.position, game.position, away) for enemy in game.enemies]
    taken: set[Position] = set()
    for enemy, choice in zip(game.enemies, choices, strict=True):
        if choice is not None and choice not in taken:
            enemy.row, enemy.col = choice
            taken.add(choice)


def displaced(position: Position, player: Position, away: bool) -> Position | None:
    """Returns the cell that PUSH (away) or PULL chooses for an enemy, None where it has no candidate."""
    sense = 1 if away else -1
    vertical = sense * sign(position[0] - player[0])
    horizontal = sense * sign(position[1] - player[1])
    candidates = [shifted(position, (vertical, horizontal))]
    if vertical:
        candidates.append(shifted(position, (vertical, 0)))
    if horizontal:
        candidates.append(shifted(position, (0, horizontal)))
    candidates = [one for one in candidates if inside(one) and (away or one != player)]
    # min takes the earliest of equals
    return min(candidates, key=lambda one: -sense * manhattan(one, player), default=None)


def sign(number: int) -> int:
    return (number > 0) - (number < 0)


def crash(game: Game) -> None:
    for near in eight_neighbours(game.position):
        if game.cells[near].is_block:
            game.cells[near].become("empty")
        remove_enemies_at(game, near)
        remove_transmission_at(game, near)


def warp(game: Game, dice: Dice) -> None:
    targets: list[Enemy | Transmission] = [*game.enemies, *game.transmissions]
    target = targets[dice.warp_target(targets)]
    if isinstance(target, Enemy):
        remove_enemies_at(game, target.position)
    else:
        remove_transmission_at(game, target.position)
    game.row, game.col = target.position


def poly(game: Game, dice: Dice) -> None:
    for enemy in game.enemies:
        new_type = dice.poly_type(enemy, [other for other in ENEMY_TYPES if other != enemy.type])
        enemy.hp += MAX_HP[new_type] - MAX_HP[enemy.type]
        enemy.type = new_type
        if enemy.hp <= 0:
            count_kill(game, enemy)
    game.enemies = [enemy for enemy in game.enemies if enemy.hp > 0]


def bomb_nearest_daemon(game: Game) -> None:
    daemons = enemies_of_type(game, "daemon")
    nearest = min(daemons, key=lambda daemon: manhattan(daemon.position, game.position))
    count_kill(game, nearest)
    game.enemies = [enemy for enemy in game.enemies if enemy is not nearest]
    blast = eight_neighbours(nearest.position)
    hit(game, [enemy for enemy in game.enemies if enemy.position in blast], 1)


# ---------------------------------------------------------------------------------------------------------------------
# History (§10)


def push_snapshot(game: Game) -> None:
    snapshot = Snapshot(
        player={name: getattr(game, name) for name in PLAYER_FIELDS},
        turn=game.turn,
        owned=set(game.owned),
        enemies=[replace(enemy, from_siphon=False, scheduled=False) for enemy in game.enemies],
        transmissions=[replace(one, from_siphon=False, scheduled=False) for one in game.transmissions],
        cells={position: replace(cell) for position, cell in game.cells.items()},
        show=game.show,
        calm=game.calm,
        atk_uses=game.atk_uses,
    )
    game.history.append(snapshot)
    if len(game.history) > game.depth:
        del game.history[0]


def undo(game: Game) -> None:
    snapshot = game.history.pop()
    for name, value in snapshot.player.items():
        setattr(game, name, value)
    game.turn = snapshot.turn
    game.owned = snapshot.owned
    game.enemies = snapshot.enemies
    game.transmissions = snapshot.transmissions
    game.cells = snapshot.cells
    game.show = snapshot.show
    game.calm = snapshot.calm
    game.atk_uses = snapshot.atk_uses


# ---------------------------------------------------------------------------------------------------------------------
# The enemy turn (§7)


def enemy_turn(game: Game, dice: Dice) -> None:
    if game.step:
        game.step = False
        return
    game.turn += 1
    tick_transmissions(game)
    move_enemies(game, dice)
    if not game.calm and game.turn >= game.next_task:
        spawn(game, 1, dice, scheduled=True)
        game.next_task = game.turn + game.interval
    spawn(game, game.pending, dice, from_siphon=True)
    game.pending = 0
    for enemy in game.enemies:
        enemy.disabled = max(0, enemy.disabled - 1)
        enemy.stunned = False
    push_snapshot(game)


def tick_transmissions(game: Game) -> None:
    waiting = []
    for one in game.transmissions:
        if one.turns <= 1:
            game.enemies.append(
                Enemy(
                    type=one.type,
                    row=one.row,
                    col=one.col,
                    hp=MAX_HP[one.type],
                    disabled=1,
                    from_siphon=one.from_siphon,
                    scheduled=one.scheduled,
                )
            )
        else:
            one.turns -= 1
            waiting.append(one)
    game.transmissions = waiting


def move_enemies(game: Game, dice: Dice) -> None:
    """Runs both sub-steps; hp may reach 0 on the way without stopping them."""
    first = [enemy for enemy in game.enemies if not enemy.idle]
    attackers = set()
    for enemy in dice.order(first):
        if attack_or_approach(game, enemy):
            attackers.add(id(enemy))
    second = [enemy for enemy in first if enemy.type == "virus" and id(enemy) not in attackers]
    for enemy in dice.order(second):
        attack_or_approach(game, enemy)


def attack_or_approach(game: Game, enemy: Enemy) -> bool:
    """Lets one enemy act; returns whether it attacked."""
    if manhattan(enemy.position, game.position) == 1:
        game.hp = max(0, game.hp - 1)
        return True
    enemy.row, enemy.col = next_cell(game, enemy)
    return False


def next_cell(game: Game, enemy: Enemy) -> Position:
    """Returns where an enemy that does not attack goes, its own cell where it has nowhere to go."""
    others = [other for other in game.enemies if other is not enemy]
    occupied = {one.position for one in (*others, *game.transmissions)}
    walkable = set(POSITIONS) if enemy.type == "glitch" else game.non_blocks()
    nearby = adjacent_cells(enemy.position)

    # In each rule min takes the earliest of equals: up, down, left, right.
    clear = walking_distances(game.position, walkable - (occupied - {game.position}))
    choices = [near for near in nearby if near in clear]
    if choices:
        return min(choices, key=clear.__getitem__)

    crowded = walking_distances(game.position, walkable)
    choices = [near for near in nearby if near in crowded]
    if choices:
        choice = min(choices, key=crowded.__getitem__)
        if choice not in occupied:
            return choice

    choices = [near for near in nearby if near in walkable and near not in occupied]
    return min(choices, key=lambda near: manhattan(near, game.position), default=enemy.position)


# ---------------------------------------------------------------------------------------------------------------------
# One step and its reward (§4, §12)


def step(game: Game, action: int, dice: Dice) -> tuple[float, bool]:
    """Takes one action in the game; returns the reward and whether the episode is over. Events: `game.events`."""
    game.events = Events()
    if not legal(game)[action]:
        return 0.0, True

    old_score, old_hp, old_credits, old_energy = game.score, game.hp, game.credits, game.energy
    old_distance = exit_distance(game)
    missed = missed_resources(game) if action == SIPHON else 0

    reached_exit = False
    if action < SIPHON:
        reached_exit = attack_or_walk(game, DIRECTIONS[action])
    elif action == SIPHON:
        siphon(game)
    else:
        reached_exit = run_program(game, action - FIRST_PROGRAM, dice)

    ends_turn = action <= SIPHON or action == WAIT
    if reached_exit:
        complete_stage(game, dice)
    elif ends_turn:
        enemy_turn(game, dice)

    events = game.events
    events.died = game.hp == 0
    reward = 0.5 * (game.score - old_score)
    reward += 0.3 * events.kills
    reward += 1.0 * events.pickup
    reward += 0.05 * (game.credits - old_credits + game.energy - old_energy)
    reward += 1.0 * (game.hp - old_hp)
    reward += 0.025 * missed
    if events.completed:
        reward += stage_reward(game)
        reward += 0.05 * old_distance
        reward += 0.01 * (game.credits + game.energy)
    elif not events.died:
        reward += 0.05 * (old_distance - exit_distance(game))
    if events.won:
        reward += 500 + 100 * game.score
    if events.died:
        reward -= 0.5 * sum(STAGE_REWARDS[: game.stage - 1])
        if ends_turn and old_hp > 0 and beside_siphon_spawn(game):
            reward -= 10
    if action == RESET and old_hp == 2:
        reward -= 0.3
    return reward, events.died or events.won


def stage_reward(game: Game) -> int:
    """Returns the pay for the stage just completed; a win leaves the stage number at 8 and so pays like stage 7."""
    return STAGE_REWARDS[game.stage - 2]


def beside_siphon_spawn(game: Game) -> bool:
    return any(enemy.from_siphon and manhattan(enemy.position, game.position) == 1 for enemy in game.enemies)


def exit_distance(game: Game) -> int:
    """Returns the length of the shortest walk to the exit position, 0 if there is none."""
    walkable = game.non_blocks() | {game.position, game.exit}
    return walking_distances(game.exit, walkable).get(game.position, 0)


class Yield(NamedTuple):
    """What a siphon on a cell would give."""

    credits: int
    energy: int
    points: list[int]
    programs: set[int]


def siphon_yield(game: Game, position: Position) -> Yield:
    if game.cells[position].is_block:
        return Yield(0, 0, [], set())
    fresh = [game.cells[one] for one in cross(position) if not game.cells[one].siphoned]
    blocks = [cell for cell in fresh if cell.is_block]
    ground = [cell for cell in fresh if not cell.is_block]
    return Yield(
        credits=sum(cell.credits for cell in ground),
        energy=sum(cell.energy for cell in ground),
        points=sorted(cell.points for cell in blocks if cell.kind == "data"),
        programs={cell.program for cell in blocks if cell.program is not None} - game.owned,
    )


def missed_resources(game: Game) -> int:
    """Returns the credits and energy that better places to siphon would have given beyond the player's."""
    mine = siphon_yield(game, game.position)
    candidates = game.non_blocks()
    if mine.points or mine.programs:
        wanted = {one for one in cross(game.position) if game.cells[one].is_block and not game.cells[one].siphoned}
        candidates = {position for position in candidates if wanted <= set(cross(position))}
    better = [
        other
        for other in (siphon_yield(game, position) for position in candidates)
        if (other.points, other.programs) == (mine.points, mine.programs)
        and other.credits >= mine.credits
        and other.energy >= mine.energy
        and (other.credits > mine.credits or other.energy > mine.energy)
    ]
    most_credits = max((other.credits for other in better), default=mine.credits)
    most_energy = max((other.energy for other in better), default=mine.energy)
    return most_credits - mine.credits + most_energy - mine.energy


# ---------------------------------------------------------------------------------------------------------------------
# What the player sees and may do (§13, §14)


def legal(game: Game) -> list[bool]:
    """Returns for each of the 28 actions whether it is legal."""
    walks = [can_walk_or_attack(game, shifted(game.position, direction)) for direction in DIRECTIONS]
    programs = [
        index in game.owned
        and game.credits >= program.credits
        and game.energy >= program.energy
        and bool(program.condition(game))
        for index, program in enumerate(PROGRAMS)
    ]
    return [*walks, game.data_siphons > 0, *programs]


def can_walk_or_attack(game: Game, ahead: Position) -> bool:
    return inside(ahead) and (not game.cells[ahead].is_block or bool(game.enemies_at(ahead)))


def observe(game: Game) -> tuple[list[float], list[int], dict[tuple[int, int, int], float]]:
    """Returns the player (10), the owned programs (23) and {(row, col, channel): value} of the nonzero grid values."""
    player = [
        game.row / 5,
        game.col / 5,
        game.hp / 3,
        min(game.credits / 50, 1.0),
        min(game.energy / 50, 1.0),
        (game.stage - 1) / 7,
        game.data_siphons / 10,
        (game.attack_damage - 1) / 2,
        float(game.show),
        float(game.calm),
    ]
    programs = [int(index in game.owned) for index in range(len(PROGRAMS))]
    grid = {
        (row, col, channel): float(value)
        for row, col in POSITIONS
        for channel, value in observe_cell(game, (row, col)).items()
        if value != 0
    }
    return player, programs, grid


def observe_cell(game: Game, position: Position) -> dict[int, float]:
    """Returns the channels of one cell; those left out are 0."""
    cell = game.cells[position]
    channels: dict[int, float] = {}
    enemy = next(iter(game.enemies_at(position)), None)
    if enemy is not None and is_observed(game, enemy):
        channels[ENEMY_TYPES.index(enemy.type)] = 1
        channels[4] = enemy.hp / 3
        channels[5] = enemy.stunned
        channels[6] = enemy.from_siphon
    if cell.is_block:
        channels[11] = cell.siphoned
        if cell.question:
            channels[9] = 1
        elif cell.kind == "data":
            channels[7] = 1
            channels[10] = cell.points / 9
            channels[35] = cell.spawn / 9
        elif cell.program is not None:
            channels[8] = 1
            channels[12 + cell.program] = 1
            channels[35] = cell.spawn / 9
    transmission = game.transmission_at(position)
    if transmission is not None:
        channels[36] = min(transmission.turns / 4, 1)
    if cell.siphoned or not cell.is_block:
        channels[37] = cell.credits / 3
        channels[38] = cell.energy / 3
    channels[39] = cell.content == "pickup"
    channels[40] = cell.content == "exit"
    channels[41] = cell.centre
    return channels


def is_observed(game: Game, enemy: Enemy) -> bool:
    return enemy.type != "cryptog" or game.show or enemy.row == game.row or enemy.col == game.col
