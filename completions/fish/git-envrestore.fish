# go back to an earlier environment; made by completions/build.py: do not edit.

# No option is offered behind `--`.
function __envhist_in
    not contains -- -- (commandline -opc)
end

complete -c git-envrestore -n __envhist_in -s n -l dry-run -d 'print the plan and change nothing'
complete -c git-envrestore -n __envhist_in -l to -x -k -a '(__fish_complete_directories)' -d 'write the moment there, and touch nothing here'
complete -c git-envrestore -n __envhist_in -l plan -x -d 'only if it is still the plan that was shown under this id'
complete -c git-envrestore -n __envhist_in -l keep-new -d 'remove nothing that came after the moment'
complete -c git-envrestore -n __envhist_in -l keep-code -d 'leave the files alone that HEAD tracks'
complete -c git-envrestore -n __envhist_in -l only -x -a 'packages env databases files' -d 'only these: packages, env, databases, files'
complete -c git-envrestore -n __envhist_in -l head -d 'also move HEAD to the code commit of that moment'
complete -c git-envrestore -n __envhist_in -l relocate -d 'have what comes of another working tree name this one'
complete -c git-envrestore -n __envhist_in -l services -d 'with the state of the services that are configured'
complete -c git-envrestore -n __envhist_in -l verify -d 'then run the check that the moment was judged by'
complete -c git-envrestore -n __envhist_in -l attachments -x -k -a '(__fish_complete_directories)' -d 'write what was attached to the moment there, and nothing else'
complete -c git-envrestore -n __envhist_in -s f -l force -d 'override the refusals that name it'
complete -c git-envrestore -n __envhist_in -l allow-unsigned -d 'restore a snapshot that none of your keys signed'
complete -c git-envrestore -n __envhist_in -l roots -d 'with --allow-unsigned: change additional roots too'
complete -c git-envrestore -n __envhist_in -l undo -d 'take back the last restore, or go to the state before; a number: so many'
complete -c git-envrestore -n __envhist_in -l redo -d 'go forth again after an undo'
complete -c git-envrestore -n __envhist_in -l continue -d 'finish a restore that was broken off'
complete -c git-envrestore -n __envhist_in -l abort -d 'take back a restore that was broken off'
complete -c git-envrestore -n __envhist_in -s q -l quiet -d 'say nothing but warnings and errors'
complete -c git-envrestore -n __envhist_in -l json -d 'the answer as JSON'
complete -c git-envrestore -n __envhist_in -l color -d 'colour: always, never or auto (--no-color: never)'
complete -c git-envrestore -n __envhist_in -s P -l no-pager -d 'do not use the pager'
complete -c git-envrestore -n __envhist_in -s C -x -k -a '(__fish_complete_directories)' -d 'run as if started there; repeatable'
complete -c git-envrestore -n __envhist_in -s h -d 'this short help'
complete -c git-envrestore -n __envhist_in -l help -d 'the man page'
complete -c git-envrestore -n __envhist_in -l version -d 'the version of this program'
complete -c git-envrestore -n __envhist_in -l no-color -d 'no colour'
complete -c git-envrestore -n __envhist_in -f -k -a '(git envhist complete revisions 2>/dev/null)'
