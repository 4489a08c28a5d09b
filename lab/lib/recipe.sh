# shellcheck shell=bash
# What the lab's root file systems are made of.  It never builds anything: tree.sh does.
#
# Variants: trixie      Slurm 24.11 with Apptainer and both MPIs, the one every test uses
#           accounting  the same with slurmdbd and MariaDB, so that sacct answers
#           bookworm    Slurm 22.05, without Apptainer (Debian has none that runs on its glibc 2.36)
#           sid         the newest Slurm of Debian, with Apptainer, both MPIs, slurmdbd and MariaDB; its versions move

readonly ROOT_VARIANTS="trixie accounting bookworm sid"

# Which of them a command uses that does not name one.
# shellcheck disable=SC2034  # other files read it
readonly DEFAULT_VARIANT=${ARGOSY_LAB_VARIANT:-trixie}

recipe_suite() {
  case $1 in
    trixie | accounting) echo trixie ;;
    bookworm | sid) echo "$1" ;;
    *) die "no root file system is called '$1'; there are: $ROOT_VARIANTS" ;;
  esac
}

# The variant that also answers sacct.
recipe_with_database() {
  case $1 in
    trixie | accounting) echo accounting ;;
    sid) echo sid ;;
    *) die "the root file system '$1' has no slurmdbd" ;;
  esac
}

# apptainer is in Debian sid only; everything else stays at trixie (see recipe_apt_options).
recipe_extra_suites() {
  [ "$(recipe_suite "$1")" != trixie ] || echo sid
}

recipe_packages() {
  echo slurmd slurmctld slurm-client munge
  echo openmpi-bin mpich
  echo squashfuse squashfs-tools fuse-overlayfs fuse3 e2fsprogs bubblewrap openssh-server openssh-client
  echo iproute2 procps strace python3 python3-venv ca-certificates busybox-static
  case $1 in
    bookworm) echo libpmix2 ;;
    *) echo libpmix2t64 apptainer fuse2fs ;;
  esac
  case $1 in
    accounting | sid) echo slurmdbd mariadb-server ;;
  esac
}

recipe_apt_options() {
  echo 'APT::Install-Recommends "false"'
  echo 'Acquire::Languages "none"'
  echo "APT::Default-Release \"$(recipe_suite "$1")\""
}

# Nobody reads manuals in the lab: a third of the files.
recipe_dpkg_options() {
  printf '%s\n' path-exclude=/usr/share/man/* path-exclude=/usr/share/doc/* path-exclude=/usr/share/locale/*
}

# The digest names the tree, so that a changed recipe makes another tree and never changes one in use.
# The mirror is no part of it: the same packages come from anywhere.
recipe_digest() {
  local text
  text=$(recipe_suite "$1" && recipe_extra_suites "$1" && recipe_packages "$1" &&
    recipe_apt_options "$1" && recipe_dpkg_options && cat "$REPO/lab/lib/customize.sh") || exit 1
  sha256sum <<< "$text" | cut -c1-12
}
