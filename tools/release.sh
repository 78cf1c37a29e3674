#!/bin/sh
# Write the changelog of a version, commit, tag, and build wheel and sdist. Nothing is pushed or uploaded.
#
#     tools/release.sh BIN VERSION      BIN: the folder of the environment's programs, such as .venv/bin
#
# RELEASE_BRANCH: the branch that releases are made from (main).
set -eu
bin=$1
version=${2:-}
cd "$(dirname "$0")/.."

refuse() {
    echo "release: $1" >&2
    exit 2
}

echo "$version" | grep -Eq '^[0-9]+\.[0-9]+\.[0-9]+((a|b|rc)[0-9]+)?$' || refuse "'$version' is not a version: make release VERSION=1.2.3"
[ -z "$(git status --porcelain)" ] || refuse "the working tree has changes: commit or stash them"
branch=$(git rev-parse --abbrev-ref HEAD)
[ "$branch" = "${RELEASE_BRANCH:-main}" ] || refuse "this is branch $branch, not ${RELEASE_BRANCH:-main}"
! git rev-parse -q --verify "refs/tags/v$version" >/dev/null || refuse "the tag v$version exists"
"$bin/python" -c "import build" 2>/dev/null || refuse "the package build is missing: $bin/python -m pip install -c constraints.txt build"

sed "s/^__version__ = \".*\"/__version__ = \"$version\"/" src/torchstone/__init__.py > src/torchstone/__init__.py.new
mv src/torchstone/__init__.py.new src/torchstone/__init__.py
grep -q "^__version__ = \"$version\"" src/torchstone/__init__.py || refuse "src/torchstone/__init__.py has no __version__"
"$bin/towncrier" build --yes --version "$version"
git add -A
git commit -q -m "Release $version"

# Built before it is tagged: a version that cannot be built gets no tag.
rm -rf dist
"$bin/python" -m build --outdir dist .
"$bin/python" tools/check_distribution.py dist
"$bin/python" tools/sbom.py > dist/sbom.cdx.json
git tag -a "v$version" -m "torchstone $version"
echo "built and tagged v$version; look at 'git show', then: git push --follow-tags, and upload what is in dist/"
