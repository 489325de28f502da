# show what changed in the environment; made by completions/build.py: do not edit.

# No option is offered behind `--`.
function __envhist_in
    not contains -- -- (commandline -opc)
end

complete -c git-envdiff -n __envhist_in -l stat -d 'print the changed lines and bytes per file'
complete -c git-envdiff -n __envhist_in -l name-status -d 'print the changed paths, and how each changed'
complete -c git-envdiff -n __envhist_in -l name-only -d 'print the changed paths'
complete -c git-envdiff -n __envhist_in -s p -s u -l patch -d 'print the changes as a patch'
complete -c git-envdiff -n __envhist_in -l full-index -d 'with -p: print full object ids'
complete -c git-envdiff -n __envhist_in -l raw -d 'print git\'s raw format: modes, ids, status, paths'
complete -c git-envdiff -n __envhist_in -s z -d 'end paths with NUL, do not quote paths'
complete -c git-envdiff -n __envhist_in -s M -l find-renames -d 'detect moved files, at least <n> similar (50%)'
complete -c git-envdiff -n __envhist_in -l exit-code -d 'exit with status 1 if anything differs'
complete -c git-envdiff -n __envhist_in -s q -l quiet -d 'print nothing; implies --exit-code'
complete -c git-envdiff -n __envhist_in -l only -x -a 'packages services databases env tools files' -d 'packages, services, databases, env, tools or files'
complete -c git-envdiff -n __envhist_in -l no-fold -d 'also list what always differs between two machines'
complete -c git-envdiff -n __envhist_in -l reveal -d 'show values of sealed files, if you have the key'
complete -c git-envdiff -n __envhist_in -l json -d 'print JSON'
complete -c git-envdiff -n __envhist_in -l color -d 'colour: always, never or auto (--no-color: never)'
complete -c git-envdiff -n __envhist_in -s P -l no-pager -d 'do not use the pager'
complete -c git-envdiff -n __envhist_in -s C -x -k -a '(__fish_complete_directories)' -d 'run as if started in that directory; repeatable'
complete -c git-envdiff -n __envhist_in -s h -d 'print this short help'
complete -c git-envdiff -n __envhist_in -l help -d 'open the man page'
complete -c git-envdiff -n __envhist_in -l version -d 'print the version of this program'
complete -c git-envdiff -n __envhist_in -l no-color -d 'no colour'
complete -c git-envdiff -n __envhist_in -f -k -a '(git envhist complete revisions 2>/dev/null)'
