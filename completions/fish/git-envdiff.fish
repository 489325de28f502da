# what changed in the environment; made by completions/build.py: do not edit.

# No option is offered behind `--`.
function __envhist_in
    not contains -- -- (commandline -opc)
end

complete -c git-envdiff -n __envhist_in -l stat -d 'lines and bytes by file'
complete -c git-envdiff -n __envhist_in -l name-only -d 'the paths'
complete -c git-envdiff -n __envhist_in -l name-status -d 'the paths, and how each changed'
complete -c git-envdiff -n __envhist_in -l raw -d 'modes, ids, status and paths, as git diff --raw'
complete -c git-envdiff -n __envhist_in -s p -s u -l patch -d 'a patch'
complete -c git-envdiff -n __envhist_in -l full-index -d 'with -p: the whole ids of contents'
complete -c git-envdiff -n __envhist_in -s z -d 'end paths with NUL, quote none'
complete -c git-envdiff -n __envhist_in -s M -l find-renames -d 'tell a moved file as one, if so much is alike'
complete -c git-envdiff -n __envhist_in -l exit-code -d 'end with 1 if anything differs'
complete -c git-envdiff -n __envhist_in -s q -l quiet -d 'print nothing; implies --exit-code'
complete -c git-envdiff -n __envhist_in -l only -x -a 'packages services databases env tools files' -d 'only these: packages, services, databases, env, tools, files'
complete -c git-envdiff -n __envhist_in -l no-fold -d 'also what differs by nature between two machines, each by itself'
complete -c git-envdiff -n __envhist_in -l reveal -d 'show the values in sealed files, if their key is here'
complete -c git-envdiff -n __envhist_in -l json -d 'the answer as JSON'
complete -c git-envdiff -n __envhist_in -l color -d 'colour: always, never or auto (--no-color: never)'
complete -c git-envdiff -n __envhist_in -s P -l no-pager -d 'do not use the pager'
complete -c git-envdiff -n __envhist_in -s C -x -k -a '(__fish_complete_directories)' -d 'run as if started there; repeatable'
complete -c git-envdiff -n __envhist_in -s h -d 'this short help'
complete -c git-envdiff -n __envhist_in -l help -d 'the man page'
complete -c git-envdiff -n __envhist_in -l version -d 'the version of this program'
complete -c git-envdiff -n __envhist_in -l no-color -d 'no colour'
complete -c git-envdiff -n __envhist_in -f -k -a '(git envhist complete revisions 2>/dev/null)'
