"""Sentences about model files."""

from __future__ import annotations

from appliance.messages.sentence import Sentence

SENTENCES: dict[str, Sentence] = {
    "model_failed": Sentence(
        "Model {model}: {cause}.",
        "模型 {model}：{cause}。",
        "See 'appliance models list'.",
        "请查看 “appliance models list”。",
    ),
    "model_missing": Sentence(
        "The model {model} is not on this box.",
        "本机没有模型 {model}。",
        "Run 'appliance models pull {model}' or 'appliance models import FILE'.",
        "请运行 “appliance models pull {model}” 或 “appliance models import 文件”。",
    ),
    "model_rejected": Sentence(
        "{path} is not a model this box can use: {cause}.",
        "{path} 不是本机可用的模型：{cause}。",
        "Get the file again, or choose a model from 'appliance models list'.",
        "请重新获取该文件，或从 “appliance models list” 中选择模型。",
    ),
    "download_failed": Sentence(
        "{model} could not be fetched: {cause}.",
        "无法下载 {model}：{cause}。",
        "What was fetched is kept; run the command again, or import the file from a stick.",
        "已下载的部分会保留；请再次运行该命令，或从 U 盘导入文件。",
    ),
    "model_file_missing": Sentence(
        "The model file {path} is not there.",
        "找不到模型文件 {path}。",
        "Check the path, or run 'appliance models list'.",
        "请检查路径，或运行 “appliance models list”。",
    ),
    "model_unknown": Sentence(
        "There is no model '{name}' in the catalogue; known: {known}.",
        "目录中没有模型 “{name}”；可用的有：{known}。",
        "Choose one of these, or run 'appliance models import FILE'.",
        "请从中选择，或运行 “appliance models import 文件”。",
    ),
    "model_unreadable": Sentence(
        "The model file {path} cannot be read: {cause}.",
        "无法读取模型文件 {path}：{cause}。",
        "Check that this user may read it, and the disk it lies on.",
        "请检查当前用户的读取权限以及所在磁盘。",
    ),
    "model_not_gguf": Sentence(
        "{path} is not a GGUF model file.",
        "{path} 不是 GGUF 模型文件。",
        "Get the model in GGUF format, or pull one from 'appliance models list'.",
        "请获取 GGUF 格式的模型，或从 “appliance models list” 中拉取。",
    ),
    "model_truncated": Sentence(
        "The model file {path} is cut off: it ends after {n_bytes} bytes.",
        "模型文件 {path} 不完整：只有 {n_bytes} 字节。",
        "Get it again: 'appliance models remove', then 'pull', or copy it once more.",
        "请重新获取：先 “appliance models remove” 再 “appliance models pull”，或重新拷贝。",
    ),
    "model_size": Sentence(
        "The model file {path} has {n_bytes} bytes instead of {n_wanted}.",
        "模型文件 {path} 的大小是 {n_bytes} 字节，应为 {n_wanted} 字节。",
        "Get it again: 'appliance models remove' and 'appliance models pull'.",
        "请重新获取：先 “appliance models remove” 再 “appliance models pull”。",
    ),
    "model_damaged": Sentence(
        "The header of the model file {path} is damaged ({cause}).",
        "模型文件 {path} 的文件头已损坏（{cause}）。",
        "Get the file again.",
        "请重新获取该文件。",
    ),
    "model_unsupported": Sentence(
        "The model file {path} cannot be used here: {what} {found} is not supported.",
        "模型文件 {path} 在此无法使用：不支持 {what} {found}。",
        "Choose a model from 'appliance models list'.",
        "请从 “appliance models list” 中选择模型。",
    ),
    "model_digest": Sentence(
        "{path} is not the recorded file: its SHA-256 is {found}, but {wanted} is expected.",
        "{path} 不是登记的文件：其 SHA-256 为 {found}，应为 {wanted}。",
        "Do not use it; remove it and get it again from a source you trust.",
        "请勿使用；请删除后从可信来源重新获取。",
    ),
    "model_changed": Sentence(
        "The hub now offers another file for {model} (SHA-256 {found}) than the one pinned here "
        "at the first pull ({wanted}).",
        "模型 {model} 在模型站上的文件（SHA-256 {found}）与首次拉取时固定的（{wanted}）不同。",
        "If you trust the new one, download it yourself and run 'appliance models import FILE'.",
        "如果信任新文件，请自行下载并运行 “appliance models import 文件”。",
    ),
    "model_exists": Sentence(
        "Another model called {name} is already here.",
        "本机已有另一个名为 {name} 的模型。",
        "Give another name with --name, or remove the old one first.",
        "请用 --name 指定其他名称，或先删除旧模型。",
    ),
    "model_bad_name": Sentence(
        "'{name}' cannot be a model's name.",
        "“{name}” 不能用作模型名称。",
        "Use small letters, digits, dot, dash and underscore.",
        "请使用小写字母、数字、点、连字符和下划线。",
    ),
    "disk_full": Sentence(
        "There is not enough room in {path} for {model}: {n_free} bytes are free, {n_needed} are "
        "needed.",
        "{path} 空间不足，放不下 {model}：剩余 {n_free} 字节，需要 {n_needed} 字节。",
        "Free some space, or set 'models.directory' to a larger disk.",
        "请清理磁盘空间，或将 “models.directory” 指向更大的磁盘。",
    ),
    "download_cancelled": Sentence(
        "The download of {model} was stopped.",
        "{model} 的下载已停止。",
        "What was fetched is kept; run the command again to go on.",
        "已下载的部分会保留；再次运行该命令即可继续。",
    ),
    "pull_running": Sentence(
        "{model} is already being fetched by another command.",
        "另一个命令正在下载 {model}。",
        "Wait for it to finish.",
        "请等待其完成。",
    ),
    "models_book_damaged": Sentence(
        "The list of models {path} is damaged: {cause}.",
        "模型清单 {path} 已损坏：{cause}。",
        "Delete this file; models of the catalogue are found again by their names.",
        "请删除该文件；目录中的模型会按名称重新识别。",
    ),
    "models_folder_unwritable": Sentence(
        "{path} cannot be written: {cause}.",
        "无法写入 {path}：{cause}。",
        "Check its permissions, or set 'models.directory'.",
        "请检查其权限，或修改 “models.directory”。",
    ),
    "catalogue_invalid": Sentence(
        "The model catalogue {path} cannot be used: {cause}.",
        "模型目录文件 {path} 无法使用：{cause}。",
        "Install the program again.",
        "请重新安装本程序。",
    ),
}
