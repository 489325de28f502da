# Completion of `git envdiff` and `git-envdiff` for fish; nothing of ours is started.

function __git_envdiff_using
    set --local words (commandline -opc)
    contains -- envdiff $words; or contains -- git-envdiff $words
end

for program in git git-envdiff
    complete -c $program -n __git_envdiff_using -f -a now -d 'the live environment'
    complete -c $program -n __git_envdiff_using -l stat -d 'lines and bytes by file'
    complete -c $program -n __git_envdiff_using -l name-only -d 'the paths'
    complete -c $program -n __git_envdiff_using -l name-status -d 'the paths, and how each changed'
    complete -c $program -n __git_envdiff_using -l raw -d 'modes, ids, status and paths'
    complete -c $program -n __git_envdiff_using -l patch -s p -d 'a patch'
    complete -c $program -n __git_envdiff_using -s z -d 'end paths with NUL'
    complete -c $program -n __git_envdiff_using -l find-renames -s M -d 'tell a moved file as one'
    complete -c $program -n __git_envdiff_using -l exit-code -d 'end with 1 if anything differs'
    complete -c $program -n __git_envdiff_using -l quiet -s q -d 'print nothing'
    complete -c $program -n __git_envdiff_using -l only -x -a 'packages services databases env tools files' -d 'only these classes'
    complete -c $program -n __git_envdiff_using -l reveal -d 'show the values in sealed files'
    complete -c $program -n __git_envdiff_using -l json -d 'the answer as JSON'
    complete -c $program -n __git_envdiff_using -l color -d 'always, never or auto'
    complete -c $program -n __git_envdiff_using -l no-color -d 'no colour'
    complete -c $program -n __git_envdiff_using -l no-pager -s P -d 'do not use the pager'
    complete -c $program -n __git_envdiff_using -l help -d 'the man page'
    complete -c $program -n __git_envdiff_using -l version -d 'the version of this program'
end
