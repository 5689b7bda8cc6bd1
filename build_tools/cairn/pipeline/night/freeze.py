"""Begin a night: freeze its sources in one manifest, and record the expected legs.

What is written, in this order, and what the next run does that freezes the night of a run that was killed:

| written | without what follows it | the next run |
| --- | --- | --- |
| claims of versions (`versions`), the recipe | part of no night | finds its own claims |
| `manifest.json`, lists of tests | no night has a name yet | takes the manifest; with a root, replaces it |
| `night.json` | a night whose name nobody may have seen | goes on with it; with a root, if it is the same |

In a store with a root, others may write below `nights/`, and nobody signs there. So what lies there under an
id alone counts only where it is, but for its moment, what this run would write itself.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import structs
from packaging.version import Version

from cairn import datafile
from cairn.build.inputs import variables
from cairn.errors import SourceError, StoreError, UsageError
from cairn.matrix.legs import Leg
from cairn.output import Progress, console, github, silent, wording
from cairn.pipeline.night import needs, plan, shards, versions
from cairn.pipeline.night.needs import FreezeRequest
from cairn.pipeline.night.plan import NightPlan
from cairn.release import night_names, recipes
from cairn.release.index import keys
from cairn.release.index.generation import now
from cairn.release.trust import anchor
from cairn.sources import checkout_stack
from cairn.sources.checkout.checkout import CheckoutRequest
from cairn.sources.checkout.checkout_options import CheckoutOptions
from cairn.sources.checkout.describe import Checkout
from cairn.sources.git import url
from cairn.sources.manifest import manifest, restore
from cairn.sources.manifest.manifest import Manifest
from cairn.stack import Stack, recipe
from cairn.store.protocol import Store
from cairn.targets import in_order
from cairn.testing.suite import suite_toml


def freeze(
    store: Store, request: FreezeRequest, *, dry_run: bool = False, say: Progress = silent
) -> NightPlan:
    """Begin a night, or return the existing one.

    Raises:
        UsageError: no leg is expected, or one of a different stack or line, or its tests are not those that
            the gate asks for; or a list of tests is not of its format.
        NetworkError: a list of tests cannot be fetched.
        SourceError: a checkout has what its origin does not.
    """
    refs, reviewed = _refs(request), needs.reviewed(store, request)
    night = plan.find(store, request.night)
    is_named = bool(night_names.taken_apart(request.night)[1])
    if night is not None and (is_named or anchor.anchor(store) is None):
        _refuse_other(store, night, request)
        return night
    needs.refuse(store, request, say)
    fetched = _lists(request, say)
    frozen = _manifest(store, request, refs, reviewed, dry_run=dry_run, say=say)
    if reviewed is not None and frozen.sdk_version and Version(frozen.sdk_version) not in reviewed:
        raise UsageError(
            f"the lock of {request.stack.name} has no ROCm {frozen.sdk_version}, but "
            f"{', '.join(map(str, sorted(reviewed)))}",
            tip="name one that it has, or lock that: cairn index mirror lock --rocm-index-url URL",
        )
    new_plan = NightPlan(
        night=night_names.check_id(request.night),
        stack=request.stack.name,
        line=request.stack.line,
        frozen=now(),
        manifest_sha256=frozen.digest(),
        staging=keys.DEV if frozen.off_line else keys.STAGING,
        release=request.release,
        legs=request.legs,
        log=github.run_url(),
        refs=_refs_of(request.stack, frozen),
        # Not in the manifest: no wheel depends on them, and each night would build everything again.
        lists={url: hashlib.sha256(data).hexdigest() for url, data in fetched.items()},
    )
    versions.refuse(store, new_plan, request.stack, frozen, say)
    if frozen.recipe != recipe.digest_of(request.stack):
        raise SourceError(
            f"the stack {request.stack.name} was edited while it was frozen", tip="run the same command again"
        )
    if night is None and not dry_run:
        night = _created(store, new_plan, frozen, fetched, request.stack)
    return new_plan if night is None else _gone_on_with(store, request, night, new_plan)


def _created(
    store: Store, new_plan: NightPlan, frozen: Manifest, fetched: Mapping[str, bytes], stack: Stack
) -> NightPlan | None:
    """Store a night; return the one of another run that was first, or None."""
    try:
        recipes.put(store, stack)
        plan.create(store, new_plan, frozen, fetched)
    except StoreError:
        if (night := plan.find(store, new_plan.night)) is None:
            raise
        return night
    return None


def _gone_on_with(store: Store, request: FreezeRequest, night: NightPlan, new_plan: NightPlan) -> NightPlan:
    """Return a night that is there under the id of the one to begin.

    Raises:
        UsageError: it is of something else, or, in a store with a root, not the very same.
    """
    if anchor.anchor(store) is None:
        _refuse_other(store, night, request)
        return night
    is_past = datetime.fromisoformat(night.frozen) <= datetime.fromisoformat(new_plan.frozen)
    if not is_past or structs.replace(new_plan, frozen=night.frozen) != night:
        night_names.refuse_unnamed(store, night.night)
    return night


def _lists(request: FreezeRequest, say: Progress) -> dict[str, bytes]:
    """Fetch the lists of tests that the suites of the legs read; none where no leg has a suite."""
    has_suites = any(shards.expected(request.stack, leg) for leg in request.legs)
    return suite_toml.fetch(shards.suite_of(request.stack), say=say) if has_suites else {}


def _manifest(
    store: Store,
    request: FreezeRequest,
    refs: Mapping[str, CheckoutOptions],
    reviewed: frozenset[Version] | None,
    *,
    dry_run: bool,
    say: Progress,
) -> Manifest:
    frozen, key = None, keys.night_key(night_names.check_id(request.night), "manifest.json")
    # There is one where an attempt was ended between two writes.
    if not anchor.anchor(store) and store.exists(key):
        frozen = datafile.loads(store.read(key).data, Manifest, name=f"{store.url}/{key}")
    is_recipe = frozen is not None and frozen.recipe == recipe.digest_of(request.stack)
    if frozen is None or not (is_recipe and _is_for(frozen, request)) or {*frozen.off_line} != refs.keys():
        if request.like:
            frozen = _frozen_again(store, request, dry_run=dry_run)
        else:
            current = _freeze(request, refs, reviewed, say)
            frozen = _or_earlier(store, request, current, say, dry_run=dry_run)
    else:
        _refuse_other_refs(request.night, _refs_of(request.stack, frozen), request)
    if frozen.off_line:
        _refuse_channel(request, frozen.off_line)
    return frozen


def _refs(request: FreezeRequest) -> dict[str, CheckoutOptions]:
    """Read which commits are asked for in place of the line's, by project.

    Raises:
        UsageError: something is no ref of a project, or the night goes elsewhere than such nights do.
    """
    refs: dict[str, CheckoutOptions] = {}
    for word in re.split(r"[,\s]+", request.refs.strip()) if request.refs.strip() else ():
        left, _, right = word.partition("=")
        origin, _, hashtag = right.rpartition("@") if "://" in right else ("", "", right)
        if not hashtag or "://" in hashtag or ("://" in right and "/" not in origin.partition("://")[2]):
            raise UsageError(
                f"{url.without_credentials(word)[:100]!r} names no ref of a project",
                tip="write torch=my-branch, or torch=https://github.com/me/pytorch@my-branch for a fork",
            )
        if (name := request.stack.project(left).name) in refs:
            raise UsageError(f"{name} has two refs: a night has one commit of it")
        refs[name] = CheckoutOptions(origin=origin, hashtag=hashtag)
    if refs:
        _refuse_channel(request, tuple(refs))
    if refs and request.like:
        raise UsageError(
            f"the night {request.like} has its own commits", tip="leave out --refs, or --like to freeze anew"
        )
    return refs


def _refuse_channel(request: FreezeRequest, off_line: Sequence[str]) -> None:
    """Refuse to bring what is not of a line to where the line's sets go."""
    if request.release != keys.DEV:
        raise UsageError(
            f"{request.release} is for commits of the line {request.stack.line}, and that of"
            f" {' and '.join(off_line)} is not",
            tip=f"such sets stay in a channel of their own: --to {keys.DEV}",
        )


def _refs_of(stack: Stack, frozen: Manifest) -> tuple[str, ...]:
    chosen = (project for project in frozen.projects if project.name in frozen.off_line)
    return tuple(_spelt(stack, project.name, project.origin, project.hashtag) for project in chosen)


def _spelt(stack: Stack, name: str, origin: str, hashtag: str) -> str:
    """Return how a user writes a ref; one of a fork has its origin."""
    origin_of_project = checkout_stack.origin_of(stack.project(name)) if origin else ""
    is_fork = url.identity(origin_of_project) != url.identity(origin)
    return f"{name}={url.without_credentials(origin)}@{hashtag}" if is_fork else f"{name}={hashtag}"


def _refuse_other(store: Store, night: NightPlan, request: FreezeRequest) -> None:
    expected = (request.stack.name, request.stack.line, request.release)
    if (night.stack, night.line, night.release) != expected:
        raise UsageError(
            f"the night {night.night} is of {night.stack}, line {night.line}, to {night.release}, and not of"
            f" {', '.join(expected)}",
            tip="give it what it was begun with, or begin one under a different id",
        )
    recipes.require(store, plan.manifest_of(store, night).recipe, request.stack)
    _refuse_other_refs(night.night, night.refs, request)


def _refuse_other_refs(night: str, refs: Sequence[str], request: FreezeRequest) -> None:
    spellings = {_spelt(request.stack, name, ref.origin, ref.hashtag) for name, ref in _refs(request).items()}
    if not spellings <= set(refs):
        raise UsageError(
            f"the night {night} is of {', '.join((request.stack.line, *refs))}",
            tip="leave out --refs, or begin one under another id",
        )


def _is_for(frozen: Manifest, request: FreezeRequest) -> bool:
    expected = (request.stack.name, request.stack.line)
    return (frozen.stack, frozen.line) == expected and not _lacking(frozen, request.legs)


def _frozen_again(store: Store, request: FreezeRequest, *, dry_run: bool) -> Manifest:
    """Return the manifest of an earlier night, if it covers these legs."""
    night_names.refuse_unnamed(store, request.like)
    frozen = plan.manifest_of(store, plan.read(store, request.like))
    if not _is_for(frozen, request):
        lacking = _lacking(frozen, request.legs)
        gap = f", and not for {', '.join(lacking)}" if lacking else ""
        raise UsageError(
            f"the manifest of the night {request.like} is of {frozen.stack}, line {frozen.line}{gap}",
            tip="take fewer families and Pythons, or freeze anew",
        )
    # With another recipe, or a release under another SDK, it is another manifest, and built again.
    changed = structs.replace(frozen, recipe=recipe.digest_of(request.stack))
    if request.rocm_version not in ("", None, frozen.sdk_version) and request.stack.sdk is not None:
        place = _sdk_place(request) or frozen.rocm_index_url
        changed = structs.replace(changed, sdk_version=request.rocm_version, rocm_index_url=place)
    for problem in recipes.problems(store, frozen.recipe, request.stack):
        console.current().warn(f"{problem}: its sets are built again")
    return frozen if changed == frozen else _settled(store, request, changed, dry_run=dry_run)


def _settled(store: Store, request: FreezeRequest, frozen: Manifest, *, dry_run: bool) -> Manifest:
    legs = (*request.legs, *request.others)
    return versions.settle(store, request.stack, frozen, legs, dry_run=dry_run)


def _or_earlier(
    store: Store, request: FreezeRequest, frozen: Manifest, say: Progress, *, dry_run: bool = False
) -> Manifest:
    """Return the manifest of the current sources, or the last night's if nothing has changed since.

    Each set of a manifest is built once. A new manifest that differed only in its families or Pythons would
    build the same versions again; one that differs in anything else gets versions of its own.
    """
    whose = (request.stack.name, request.stack.line, request.release)
    earlier = [night for night in plan.every(store) if (night.stack, night.line, night.release) == whose]
    for night in sorted(earlier, key=lambda night: night.frozen, reverse=True)[:1]:
        try:
            previous = plan.manifest_of(store, night)
        except (StoreError, UsageError) as error:
            console.current().warn(f"the night {night.night} is compared with nothing: {error}")
            break
        same = structs.replace(
            frozen.numbered({source.name: source.again for source in previous.projects}),
            targets=previous.targets,
            pythons=previous.pythons,
            platform=previous.platform,
            platforms=previous.platforms,
        )
        if same.digest() == previous.digest() and not _lacking(previous, request.legs):
            say(f"nothing has changed since the night {night.night}: its manifest is taken again")
            return previous
    return _settled(store, request, frozen, dry_run=dry_run)


def _lacking(frozen: Manifest, legs: Sequence[Leg]) -> tuple[str, ...]:
    """Return the Pythons, platforms and targets of legs that a manifest does not cover."""
    pythons = [leg.python for leg in legs if leg.python not in frozen.pythons]
    platforms = [leg.platform for leg in legs if leg.platform not in frozen.every_platform]
    targets = [name for leg in legs for name in plan.targets_of(leg) if name not in frozen.targets]
    return tuple(dict.fromkeys([*pythons, *platforms, *targets]))


def _freeze(
    request: FreezeRequest,
    refs: Mapping[str, CheckoutOptions],
    reviewed: frozenset[Version] | None,
    say: Progress,
) -> Manifest:
    stack, legs = request.stack, (*request.legs, *request.others)
    checkouts = checkout_stack.checkout_stack(
        stack,
        [
            CheckoutRequest.of(
                dataclasses.replace(
                    refs.get(project.name, CheckoutOptions()), as_of=request.as_of, commit_hipify=False
                ),
                project=project,
                checkout_dir=request.work_dir.absolute() / "src" / project.checkout_dir,
            )
            for project in stack.projects
        ],
        say=say,
    )
    for checkout in checkouts:
        if checkout.project.name in refs:
            _show_ref(checkout)
    if problems := (*restore.missing_at_origins(checkouts, say=say), *restore.local_work(checkouts)):
        raise SourceError(
            f"no runner could build this: {'; '.join(problems)}", tip="push the commits to their origins"
        )
    # In an order that says nothing of which legs were asked for: a night of all has the same manifest.
    platforms = tuple(sorted({leg.platform for leg in legs}))
    return manifest.create(
        checkouts,
        stack=stack.name,
        line=stack.line,
        targets=in_order({name for leg in legs for name in plan.targets_of(leg)}),
        pythons=tuple(sorted({leg.python for leg in legs}, key=Version)),
        platform=platforms[0],
        platforms=platforms if len(platforms) > 1 else (),
        sdk_version=needs.version_of_sdk(request, say, reviewed),
        rocm_index_url=_sdk_place(request),
        build_env=variables.parse_build_env(request.build_env, stack),
        # The compilers of each leg are those of its image: what one runner has says nothing of the others.
        toolchain={"image": request.image} if request.image else {},
        off_line=tuple(refs),
        recipe=recipe.digest_of(stack),
    )


def _show_ref(checkout: Checkout) -> None:
    """Say what a ref came to, before anything is built of it."""
    name, commit = checkout.project.name, wording.short_id(checkout.commit)
    source = commit if checkout.hashtag == checkout.commit else f"{checkout.hashtag} ({commit})"
    console.current().info(f"{name} is at {source} of {checkout.origin}, and not at the line's commit")
    for note in checkout.notes:
        console.current().warn(f"{name}: {note}")
    if checkout.hashtag == checkout.commit and not url.is_local(checkout.origin):
        console.current().warn(
            f"{name}: a host such as GitHub gives out the commits of forks by their ids, too: see whose "
            f"{commit} is"
        )


def _sdk_place(request: FreezeRequest) -> str | None:
    """Return the index of the ROCm SDK that builds install and staging copies; None if the stack makes it."""
    if not request.stack.takes_sdk:
        return None
    return url.without_credentials(request.rocm_index_url) or None
