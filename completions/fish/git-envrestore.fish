# restore an earlier environment; made by completions/build.py: do not edit.

# No option is offered behind `--`.
function __envhist_in
    not contains -- -- (commandline -opc)
end

complete -c git-envrestore -n __envhist_in -s n -l dry-run -d 'print the plan; change nothing'
complete -c git-envrestore -n __envhist_in -l plan -x -d 'refuse unless the plan still has this id'
complete -c git-envrestore -n __envhist_in -s f -l force -d 'override a refusal whose hint names --force'
complete -c git-envrestore -n __envhist_in -l services -d 'also restore the state of the configured services'
complete -c git-envrestore -n __envhist_in -l to -x -k -a '(__fish_complete_directories)' -d 'write into this directory; change nothing here'
complete -c git-envrestore -n __envhist_in -l keep-new -d 'do not remove files that are not in the snapshot'
complete -c git-envrestore -n __envhist_in -l keep-tracked -d 'do not change files that HEAD tracks'
complete -c git-envrestore -n __envhist_in -l only -x -a 'packages env databases files' -d 'restore only: packages, env, databases, files'
complete -c git-envrestore -n __envhist_in -l head -d 'also move HEAD to the code commit of the snapshot'
complete -c git-envrestore -n __envhist_in -l relocate -d 'replace the path of the other working tree by yours'
complete -c git-envrestore -n __envhist_in -l verify -d 'then run the recorded check of the snapshot'
complete -c git-envrestore -n __envhist_in -l attachments -x -k -a '(__fish_complete_directories)' -d 'write only the attached files into this directory'
complete -c git-envrestore -n __envhist_in -l allow-unsigned -d 'restore a snapshot that none of your keys signed'
complete -c git-envrestore -n __envhist_in -l roots -d 'with --allow-unsigned: change additional roots too'
complete -c git-envrestore -n __envhist_in -l undo -d 'undo the last restore, or <number> steps'
complete -c git-envrestore -n __envhist_in -l redo -d 'redo the last undo'
complete -c git-envrestore -n __envhist_in -l continue -d 'finish an interrupted restore'
complete -c git-envrestore -n __envhist_in -l abort -d 'undo an interrupted restore'
complete -c git-envrestore -n __envhist_in -s q -l quiet -d 'print only warnings and errors'
complete -c git-envrestore -n __envhist_in -l json -d 'print JSON'
complete -c git-envrestore -n __envhist_in -l color -d 'colour: always, never or auto (--no-color: never)'
complete -c git-envrestore -n __envhist_in -s P -l no-pager -d 'do not use the pager'
complete -c git-envrestore -n __envhist_in -s C -x -k -a '(__fish_complete_directories)' -d 'run as if started in that directory; repeatable'
complete -c git-envrestore -n __envhist_in -s h -d 'print this short help'
complete -c git-envrestore -n __envhist_in -l help -d 'open the man page'
complete -c git-envrestore -n __envhist_in -l version -d 'print the version of this program'
complete -c git-envrestore -n __envhist_in -l no-color -d 'no colour'
complete -c git-envrestore -n __envhist_in -f -k -a '(git envhist complete revisions 2>/dev/null)'
